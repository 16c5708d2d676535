"""Forms of questions that reveal the intent, one per line, as people type them."""

import re
from functools import cache

from everkept.language.past_forms import build_expression

RECALL = "recall_discussion"
TRACE = "trace_dependencies"
STRUCTURE = "understand_structure"
CODE = "find_code"

# `<name>` is a name of code at the end of the question, so it can be a plain word: `what calls login?`. `<its name>` is
# a name of code before other words.
_PARTS = {
    "<name>": r"<the><its name>(?=<kind>\s*([?!,;)]|\.(?!\w)|$))",
    "<its name>": r"`?(?P<name>[^\W\d][\w.$:]*?)`?(\(\))?",
    "<we>": r"(we|you|i|they)",
    "<the>": r"((the|a|an|our|my|your|that|this|all|any) )*",
    "<kind>": r"( (function|method|class|module|file|component|hook|interface|struct|type)s?)?",
    "<thing>": r"(function|method|class|implementation|code|snippet|script|module|component|hook"
    r"|query|regex|test|definition|source|file|config(uration)?|type|interface|struct|example"
    r"|migration|command|endpoint|handler|helper|decorator|schema)s?",
    "<talk>": r"(conversation|discussion|chat|session|meeting|talk)s?",
    "<calls>": r"(calls?|uses?|depends? (up)?on|imports?|invokes?|references?|extends?|implements?"
    r"|inherits? from|subclass(es)?|overrides?|rel(y|ies) on|consumes?)",
    "<called>": r"(used|called|imported|referenced|invoked|instantiated|subclassed|consumed)",
    "<callers>": r"(callers?|callees?|usages?|dependents?|dependenc(y|ies)|importers?"
    r"|subclass(es)?|consumers?)",
    "<breaks>": r"(breaks?|affected|affects|impacted|fails?|happens)",
    "<change>": r"(chang|renam|remov|delet|touch|modify|modif|refactor|mov|replac|edit)"
    r"(ies|ied|es|ed|ing|e|s)?\b",
    "<say>": r"(decide|discuss|say|agree|talk|conclude|choose|pick|settle|try|learn|find out|do|use"
    r"|change|mention|plan|want|think|end up|fix|solve|figure out|go with|come up with)",
    "<said>": r"(decided|discussed|said|agreed|talked|spoke|concluded|chose|chosen|picked|settled"
    r"|tried|learn(ed|t)|planned|mentioned|figured out|fixed|solved|went with|came up with)",
    "<written>": r"(defined|implemented|declared|written|coded|located|created|handled)",
    "<holder>": r"(file|module|function|class|script|package)s?",
    "<is>": r"('s| is| are| was| were)",
}

# The form that matches earliest decides. If two match at the same position, the upper one wins.
_FORMS: tuple[tuple[str, str], ...] = (
    # Worded like another intent, but asks about a conversation.
    (
        RECALL,
        r"""
        (find|show|search|look for|get|list)… (where|when|that|<talk>|decisions?)…( <we>)? <said>
        (find|show|search|get|list) (me )?<the>(\w+ ){0,2}(<talk>|decisions?)\b
        """,
    ),
    (
        TRACE,
        r"""
        (what|who|which \w+) (else )?<calls> <name>
        (what|who|which \w+) (else )?<calls>\b
        who('s| is) (calling|using|importing)( <name>)?
        where (else )?(is|are|was) <the><its name><kind> (being )?<called>\b
        where (is|are|was)… <called>\b
        what (does|do|did) <the><its name><kind> (call|import|depend on|extend|inherit|invoke)\b
        (<callers>|uses|users) (of|on) <name>
        <callers> (of|on)\b
        references to <name>
        (what|which \w+)… <breaks> (by|if|when)… <change>( to)? <name>
        affected by (any )?<change>( to)?( <name>)?
        <breaks> (by|if|when)… <change>
        if (i|we) <change> <name>
        impact (of|analysis)\b( <change>( <name>)?)?
        (dependency|call|import|class) (graph|tree|chain|hierarchy|stack)s?\b( (of|for) <name>)?
        trace (the )?(calls?|dependenc\w+|usages?)\b
        trace <name>
        blast radius\b
        """,
    ),
    (
        RECALL,
        r"""
        what (did|have|had) <we>\b( <say>\b)?
        what (was|were|is) (our |the )?(<said>|decision|conclusion|outcome|plan|rationale)\b
        what was (that|the)… we\b
        where did <we> (talk|discuss|decide|agree|say|mention)\b
        why (did|do|are|have|had) <we>\b
        (when|how) did <we>\b
        (did|have|had|has) (<we>|anyone|somebody|someone)( (ever|already|not))?\b
        ((do|can) you |i )?remember (when|how|why|what|that|the|our|if)\b
        remind me\b
        (please )?recall\b
        (our|the|a|that|which|last|previous|past|earlier) (\w+ )?<talk>\b( (about|on|where|with))?
        <we>('ve| have| had)?( already| once)? <said>\b
        last time\b
        previously\b
        earlier you\b
        in our last\b
        before we\b
        (similar|same) (problem|issue|error|bug|question)s?\b
        who (decided|said|suggested|proposed|asked|chose|wanted)\b
        """,
    ),
    (
        STRUCTURE,
        r"""
        how (do|does|did|can|will|would)… (work|works|fit together|interact|relate|communicate)\b
        how (is|are)… (structured|organi[sz]ed|designed|built|connected|related|laid out|wired)\b
        how (is|are)… (put together|set up|working)\b
        (walk|talk|take|guide) me through\b
        (structure|architecture|overview|design|layout|anatomy|internals|outline|diagram|flow) of\b
        (organi[sz]ation|big picture) (of|behind)\b
        explain (to me )?(how|the|what|our|why)\b
        describe (how|the|our)\b
        (what are )?(the )?(main )?(parts|components|modules|layers|pieces) of\b
        (relationships?|connection|difference) between\b
        what('s| is) (inside|in) (the )?(module|package|folder|class)\b
        (data|control|request|auth\w*|login) flow(?=\s*([?]|$))
        """,
    ),
    (
        CODE,
        r"""
        where (did|do|have) <we> (define|implement|put|write|keep|set|declare|handle|create)d?\b
        (show|give|get|find|pull up|open|print) (me )?<the>([\w.()`-]+ ){0,4}?<thing>\b
        find… implement\w*
        (find|locate|look up|search) (for )?(?=[`"\w]*[_(`"])
        (rip)?grep( for)?\b
        search (the |our )?(code|codebase|source|repo|repository)\b( for)?
        where<is> <the>(code|logic|function|class|method|implementation|handler|handling|snippet)\b
        where<is> <the><its name><kind> <written>\b
        where<is>… <written>\b
        (which|what) <holder> (has|have|holds?|contains?|defines?|implements?|handles?)\b
        (which|what) <holder> (is|was|are|does|do|did)\b
        (code|implementation|definition|source|snippet|signature|body) (for|of|that|to)\b
        (an? )?(code )?(example|sample|snippet)s? (of|for|that|with)\b
        how (do|does|is|was)… (implemented|coded)\b
        """,
    ),
)


@cache
def list_question_forms() -> tuple[tuple[str, "re.Pattern[str]"], ...]:
    """Return each form with its intent, in order of precedence."""
    return tuple(
        (intent, re.compile(rf"(?<![\w-])(?:{build_expression(form.strip(), _PARTS)})", re.IGNORECASE))
        for intent, forms in _FORMS
        for form in forms.strip().splitlines()
    )
