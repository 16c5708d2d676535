"""Forms of sentences that ask about the past, in four languages, and words that hint at it.

Each form lists words of which one must occur, so that most forms are ruled out without compiling a pattern.
The German, Spanish and French forms are written without accents.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

PastIntent = Literal["implementation", "memory", "last work", "discussion", "overview"]
OVERVIEW: PastIntent = "overview"  # recent work in general, without a topic

# The intent, words of which at least one must occur, and the form. Searching for the words is faster than compiling the
# pattern.
Form = tuple[PastIntent, tuple[str, ...], str]

# The topic of a form (with a question mark: as short as possible), and the end of a sentence.
_TOPICS = {
    "<topic>": r"(?P<topic>[^?!\n]{1,200})",
    "<topic?>": r"(?P<topic>[^?!\n]{1,200}?)",
    "<end>": r"(?=\s*(?:[?!.,;:\n]|$))",
}


def strip_accents(text: str) -> str:
    """Return the text without accents, which many people omit."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss").replace("’", "'"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def find_forms(
    text: str, forms: Iterable[Form], parts: Mapping[str, str]
) -> "Iterator[tuple[PastIntent, re.Match[str]]]":
    """Yield the forms that match the text, in order."""
    lowered = text.lower()
    for wanted, signs, form in forms:
        if any(sign in lowered for sign in signs):
            pattern = rf"(?<![\w'-]){build_expression(form, {**parts, **_TOPICS})}(?!\w)"
            if found := re.search(pattern, text, re.IGNORECASE):
                yield wanted, found


def build_expression(form: str, parts: Mapping[str, str]) -> str:
    """Build the regular expression of a form.

    A part may contain only parts that come after it. A space matches any whitespace, and parentheses do not capture.
    `…` matches up to 80 characters, so that matching stays fast.
    """
    for name, part in parts.items():
        form = form.replace(name, part)
    form = form.replace("… ", r"\b[^\n]{0,80}?\b").replace("…", r"\b[^\n]{0,80}?")
    form = form.replace("(", "(?:").replace("(?:?", "(?").replace(r"\(?:", r"\(")
    return form.replace(" ", r"\s+")


FOREIGN_PARTS = {
    "<wir>": r"(wir|ich|du)",
    "<haben>": r"(haben|hatten|habe|hatte|hast|hattest)",
    "<damals>": r"(gestern|letztes mal|das letzte mal|beim letzten mal|letzte woche|zuletzt|neulich"
    r"|vorher|frueher|fruher|damals)",
    "<beschlossen>": r"(beschlossen|entschieden|vereinbart|besprochen|gesagt|ausgemacht|festgelegt"
    r"|abgemacht|gewahlt|gewaehlt|geplant)",
    "<antes>": r"(la ultima vez|la vez pasada|la vez anterior|anteriormente|la semana pasada|ayer"
    r"|el otro dia)",
    "<on avait>": r"(avait-on|avions-nous|avons-nous|a-t-on|avais-je|ai-je|avais-tu|as-tu|on avait"
    r"|on a|nous avions|nous avons|j'avais|j'ai|tu avais)",
    "<decide>": r"(decide|convenu|dit|choisi|retenu|prevu)",
}
FOREIGN_FORMS: tuple[Form, ...] = (
    ("discussion", ("was ha",), r"was <haben> <wir> <topic?> <beschlossen>"),
    ("implementation", ("wie ha",), r"wie <haben> <wir> <topic>"),
    ("discussion", ("warum ha", "wieso ha", "weshalb ha"), r"(warum|wieso|weshalb) <haben> <wir> <topic>"),
    ("discussion", ("wann ha",), r"wann <haben> <wir> <topic>"),
    ("memory", ("erinner",), r"erinnerst du dich( noch)?( daran| an)?,? <topic>"),
    ("memory", ("du noch",), r"(weisst|weist) du noch,? <topic>"),
    ("memory", ("nicht mehr",), r"ich weiss nicht mehr,? <topic>"),
    ("memory", ("dir schon", "dir bereits"), r"(ich habe|hab|habe ich) dir (schon|bereits)( mal)? gesagt[:,]? <topic>"),
    (
        "last work",
        ("letzte", "zuletzt"),
        r"(letztes mal|das letzte mal|beim letzten mal|zuletzt),?( als)?( haben| hatten)? <wir> <topic>",
    ),
    (
        "overview",
        ("was haben", "was hatten", "was hab"),
        r"was (haben|hatten|habe|hab) <wir>( denn)? <damals>( so)?( hier)? (gemacht|getan)<end>",
    ),
    (
        "overview",
        ("wo war", "wo sind"),
        r"wo (waren wir|war ich|sind wir)( denn)?( <damals>)?( stehen ?geblieben| dran)?<end>",
    ),
    ("overview", ("aufgehort", "aufgehoert"), r"wo haben wir( <damals>)? aufgeho(e)?rt<end>"),
    (
        "discussion",
        ("que deci", "que acor", "que diji", "que habl", "que eleg"),
        r"que (decidimos|acordamos|dijimos|hablamos|elegimos)( (sobre|acerca de|con|para|de|en))* <topic>",
    ),
    (
        "discussion",
        ("que habiamos", "que hemos"),
        r"que (habiamos|hemos) (decidido|acordado|dicho|hablado|elegido)( (sobre|acerca de|con|para|de|en))* <topic>",
    ),
    ("implementation", ("como ",), r"como( lo)? (hicimos|hice|habiamos|hemos) <topic>"),
    ("implementation", ("como ",), r"como <topic?> <antes>"),
    ("discussion", ("por que ",), r"por que (decidimos|elegimos|hicimos|pusimos|habiamos) <topic>"),
    ("memory", ("recuerdas", "acuerdas"), r"(te acuerdas|recuerdas)( de)?( cuando| como| que| por que)? <topic>"),
    ("memory", ("ya te ",), r"ya te (dije|conte|comente|habia dicho)( antes)?( que)?[:,]? <topic>"),
    ("last work", ("ultima vez que",), r"la ultima vez que \w+( (en|con))? <topic>"),
    ("overview", ("que hicimos", "que hice"), r"que (hicimos|hice) <antes><end>"),
    ("overview", ("donde",), r"(por )?donde (nos quedamos|lo dejamos|quedamos|ibamos|estabamos)( <antes>)?<end>"),
    (
        "discussion",
        ("qu'", "quoi"),
        r"(qu'(est-ce qu')?|quoi )<on avait> <decide>( (pour|sur|de|du|des|concernant))* <topic>",
    ),
    (
        "implementation",
        ("comment a", "comment o", "comment n", "comment j", "comment e", "comment t"),
        r"comment( est-ce qu(e |'))?( )?<on avait> <topic>",
    ),
    ("implementation", ("derniere fois",), r"comment <topic?> la derniere fois"),
    ("discussion", ("pourquoi ",), r"pourquoi( est-ce qu(e |'))?( )?<on avait> <topic>"),
    (
        "memory",
        ("souvien", "rappelle", "souvenez"),
        r"(tu te souviens|te souviens-tu|vous souvenez-vous|tu te rappelles|te rappelles-tu)"
        r"( (de|du|des|quand|comment|pourquoi))? <topic>",
    ),
    ("memory", ("deja dit",), r"je (t'ai|te l'ai|vous ai|vous l'ai) deja dit( que)?[:,]? <topic>"),
    ("last work", ("derniere fois",), r"la derniere fois (que |qu')(nous|on|j'|je) ?\w+ <topic>"),
    (
        "overview",
        ("fait hier", "fait la derniere"),
        r"(qu'(est-ce qu')?|quoi )<on avait> fait (hier|la derniere fois)<end>",
    ),
    (
        "overview",
        ("etions", "etait", "arrete"),
        r"ou (en etions-nous|en etait-on|on en etait|en etais-je|nous sommes-nous arretes"
        r"|s'est-on arretes?|on s'est arretes?)<end>",
    ),
)

# As in English: a required word, the hint, and the context that changes its meaning.
FOREIGN_INDICATORS = (
    ("wieder", r"wieder", r"(?:immer|hin und) wieder|wieder und wieder"),
    ("erneut", r"erneut", ""),
    ("hnlich wie", r"(?:ae|a)hnlich wie", ""),
    ("genauso wie", r"genauso wie", ""),
    ("wie ", r"(?:so )?wie (?:beim letzten mal|letztes mal|vorher|zuvor|damals|frueher|fruher)", ""),
    ("de nuevo", r"de nuevo", ""),
    ("otra vez", r"otra vez", r"una y otra vez"),
    ("similar a", r"similar al?", ""),
    ("parecido a", r"parecido al?", ""),
    ("como ", r"(?:como|igual que) (?:antes|la ultima vez|la vez pasada)", ""),
    ("igual que", r"igual que (?:antes|la ultima vez|la vez pasada)", ""),
    ("misma", r"de la misma (?:manera|forma)", ""),
    ("nouveau", r"a nouveau|de nouveau", ""),
    ("encore une fois", r"encore une fois", ""),
    ("comme ", r"comme (?:avant|la derniere fois|precedemment|auparavant)", ""),
    ("meme ", r"de la meme (?:maniere|facon)", ""),
    ("similaire", r"similaires? (?:a|au|aux)", ""),
)

MAX_TOPIC_CHARACTERS = 200


class PastTrigger(NamedTuple):
    """A request for the past in a prompt."""

    wanted: PastIntent
    topic: str  # if empty, the whole prompt is the topic
    is_foreign: bool = False  # not English


def find_trigger(prompt: str) -> PastTrigger | None:
    """Return the first form that any sentence of the prompt matches."""
    text = prompt.replace("’", "'")
    return _find_first(text, _ENGLISH_FORMS, _ENGLISH_PARTS) or _find_first(
        strip_accents(text), FOREIGN_FORMS, FOREIGN_PARTS, is_foreign=True
    )


def _find_first(
    text: str, forms: tuple[Form, ...], parts: dict[str, str], *, is_foreign: bool = False
) -> PastTrigger | None:
    """Return the first match with a topic, otherwise the first match."""
    without_topic = None
    for wanted, found in find_forms(text, forms, parts):
        topic = _clean_topic(found.groupdict().get("topic") or "")
        trigger = PastTrigger(wanted, topic, is_foreign)
        if topic or wanted == OVERVIEW:
            return trigger
        without_topic = without_topic or trigger
    return without_topic


_ENGLISH_PARTS = {
    "<we>": r"(we|i|you|they)",
    "<ours>": r"(we|i)",
    "<did>": r"( did| have| had|'d|'ve)",
    "<had>": r"( had| have|'d|'ve)?",
    "<once>": r"(before|last (time|week|month|year|session)|previously|back then|earlier"
    r"|the other day|in the past|yesterday|the first time|(\w+|a while) ago)",
    "<made>": r"(did|do|done|solved|implemented|handled|built|fixed|made|wrote|written)",
    "<said>": r"(discussed|discuss|talked|talk|spoke|agreed|decided|settled|chose|picked|mentioned"
    r"|planned|wanted|tried|came up with|set|configured|defined|introduced|used|put|made|gave|wrote"
    r"|built|added|needed|found|hit|ran into)",
    "<lately>": r"( lately| recently| yesterday| last (time|week|session|night|\w+day)| before"
    r"| previously| the other day| earlier this week| this week| on \w+day| in the last session)",
    "<in our last>": r"in (our|the) (last|previous) (session|conversation|chat|discussion|talk|meeting)",
    "<worked>": r"(work|touch|look|chang|edit|did|do|saw|deal|built|build|debug|ran|run|deploy"
    r"|updat|fix|us)(ed|e|t|ged)?( (on|at|in|with))?",
}
_ENGLISH_FORMS: tuple[Form, ...] = (
    ("last work", ("last time",), r"last time (that )?<ours> <worked> <topic>"),
    ("last work", ("we last ", "i last "), r"(when|since|where|what)( did)? <ours> last <worked> <topic>"),
    ("last work", ("left off", "leave off"), r"where( did)? <ours>( had)? (left|leave) off( (with|on|at|in))? <topic>"),
    ("last work", ("where were we", "where was i"), r"where (were we|was i) (with|on|at|in) <topic>"),
    (
        "last work",
        ("did we do ", "did i do ", "have we done", "have i done"),
        r"what (did|have) <ours> (do|done) (about|on|with|in|to|for) <topic?> <once>",
    ),
    ("last work", ("did we do ", "did i do "), r"what did <ours> do<lately> (about|on|with|to|for) <topic>"),
    (
        "memory",
        ("told you",),
        r"<ours>(<had> told you( this| that| it)? (before|already|last time|yesterday|last week)"
        r"|<had> already told you)[:,.]*( that)? <topic>",
    ),
    (
        "memory",
        ("remember", "recall"),
        r"(remember|recall) (the time )?(when|how|why|what|where|which|who) <we> <topic>",
    ),
    (
        "memory",
        ("remember", "recall"),
        r"(do|don't|dont|did|can|could|can't|cant) you( still)? (remember|recall) <topic>",
    ),
    (
        "memory",
        ("remember", "recall"),
        r"<ours> (don't|dont|can't|cant|cannot|do not)( \w+)? (remember|recall) <topic>",
    ),
    (
        "implementation",
        ("did we", "did i", "did you", "have we", "have i", "'d we", "how we", "how i"),
        r"how(<did> <we>| <we><had>) <topic?> <once>",
    ),
    ("implementation", ("how did we ", "how did i ", "how'd we "), r"how<did> <ours> <topic>"),
    ("implementation", ("way we", "way i"), r"way <ours><had> <made> <topic?> <once>"),
    ("implementation", ("how was", "how were"), r"how (was|were) <topic?> <made> <once>"),
    (
        "implementation",
        ("previous", "earlier", "old", "former"),
        r"(our|my) (previous|earlier|old|former) "
        r"(implementation|version|solution|fix|approach|code|attempt) (of|for|to|at) <topic>",
    ),
    (
        "discussion",
        ("what was", "what were", "what's", "what is"),
        r"what( was| were| is|'s) (that|the|those|this|our) <topic?> (that )?<we><had> <said>",
    ),
    (
        "discussion",
        ("what was", "what were", "what's", "what is"),
        r"what( was| were| is|'s) (the|our) (decision|conclusion|outcome|agreement|reason|verdict)"
        r" (about|on|for|of|behind|with|regarding) <topic>",
    ),
    (
        "discussion",
        ("what did", "what have", "what'd", "what had"),
        r"what<did> <we> (decide|agree|say|conclude|discuss|settle|choose|pick|learn|find out)d?"
        r"( (on|about|for|with|regarding|to do))* <topic>",
    ),
    ("discussion", ("why did we ", "why did i "), r"why did <ours> <topic>"),
    ("discussion", ("when did we ", "when did i "), r"when did <ours> <topic>"),
    (
        "discussion",
        ("did we", "did i"),
        r"(which|what) <topic?> did <ours> (choose|pick|decide|settle|go|agree|use|end up)",
    ),
    ("discussion", ("ever", "already", "previously"), r"(did|have|had) <ours> (ever|already|previously) <topic>"),
    (
        "discussion",
        ("we discussed", "we talked", "we agreed", "we decided", "we settled"),
        r"(that|the|those) <topic?> (that )?<ours><had> (discussed|talked about|agreed on|decided on|settled on)",
    ),
    (
        "overview",
        ("did we ", "did i ", "have we ", "have i "),
        r"what (did|have) <ours> (do|done|work on|worked on|get done|finish|build|change)"
        r"( here| in this (project|repo|repository))?<lately>+<end>",
    ),
    ("overview", ("were we", "was i "), r"what (were we|was i) (doing|working on|up to)( here)?<lately>*<end>"),
    (
        "overview",
        ("leave", "left", "stop"),
        r"where( did| had)? <ours>( had)? (leave off|left off|leave (it|things)|left (it|things)"
        r"|stop|stopped)<lately>*<end>",
    ),
    ("overview", ("where were we", "where was i"), r"where (were we|was i)<lately>*<end>"),
    (
        "overview",
        ("remind me",),
        r"remind me (what|where) (we were|i was|we did|i did)( doing| working on| up to)?<lately>*<end>",
    ),
    # The most general forms come after those that state what is wanted.
    ("memory", ("earlier",), r"earlier,? you( \w+)?( me)? <topic>"),
    ("memory", ("in our last", "in the last", "in our previous"), r"<in our last>,?( (about|on))? <topic>"),
    ("memory", ("in our last", "in the last", "in our previous"), r"<topic?>,? <in our last><end>"),
    (
        "discussion",
        ("we ", "i "),
        r"<ours><had>( already| previously| once)? (discussed|talked about) (?!nothing\b)<topic>",
    ),
    (
        "discussion",
        ("we discussed", "we talked about", "we've discussed", "we had discussed"),
        r"<topic?>,?( that| as| like)? <ours><had>( already| previously| once)? (discussed|talked about)",
    ),
    ("memory", ("last time",), r"(?<!the\W)last time,? <topic>"),
    ("memory", ("last time",), r"<topic?>,?( (as|like|than))? (the )?(?<!one\W)last time<end>"),
)


def _clean_topic(topic: str) -> str:
    """Remove text after the sentence and words about the time from the topic."""
    sentence = re.split(r"[.;:]\s|\s[-–—]\s|, (?:and|but|so|because|then) ", topic, maxsplit=1)[0]
    words = re.sub(
        r"\b(?:last (?:time|week|month|year|session|night|\w+day)|before|previously|back then"
        r"|earlier|the other day|in the past|yesterday|\w+ (?:days?|weeks?|months?|years?) ago"
        r"|together|again|last session|lately|recently)\b",
        " ",
        sentence[:MAX_TOPIC_CHARACTERS],
        flags=re.IGNORECASE,
    )
    return " ".join(words.split()).strip(" ,.:;-'\"`")


# Words that hint at the past without asking for it: again, like before, the same way. Each has a word that must occur,
# a pattern for whole words, and the context that changes its meaning.
_ENGLISH_INDICATORS: tuple[tuple[str, str, str], ...] = (
    ("again", r"again", r"(?:never|over and over|time and) again|again and again"),
    ("similar", r"similar(?:ly)? to", ""),
    ("before", r"(?:like|as|same as)(?: we did| i did| you did)? before", ""),
    ("before we", r"before we", ""),
    ("last time", r"(?:like|as|same as)(?: we did| i did| you did)?(?: the)? last time", ""),
    ("same way", r"(?:the|in the) same way", ""),
    ("remember", r"remember", ""),
    (
        "recall",
        r"recall",
        r"(?:precision|accuracy|and|the|of|model'?s?|its|our|high(?:er)?|low(?:er)?) recall"
        r"|recall(?: rate| score| curve| is| was| at|@)",
    ),
    ("previously", r"previously", r"(?:the|a|any|all) previously \w+"),
    (
        "earlier",
        r"(?:(?:we|i|you|they|us|was|were|had|did|came|sent|\w+ed)\b[^.?!\n]{1,60} earlier|earlier,? we|from earlier"
        r"|earlier, (?:the|a|an|our|it)|our earlier \w+"
        r"|earlier (?:work|attempt|approach|discussion|implementation|solution|fix|conversation))",
        r"earlier (?:than|in (?:the|this)|on in)",
    ),
)
# Kept as strings, because most prompts need none of these patterns and compiling takes long. Words from a moment ago
# are already in the assistant's context.
_JUST_NOW = (
    r"\b(?:said|mentioned|told you|asked|wrote|noted|described|shown|gave(?: you)?)"
    r"(?: \w+)? (?:earlier|previously|before)\b|\bearlier i \w+|\bearlier today\b"
)
# "Do you remember" asks for the past, but "remember that" stores something.
_ASKING = (
    r"\b(?:do|don't|dont|did|can|can't|cant|could|cannot|not|i|we|if you|still|you) "
    r"(?:still |even |really |also )?(?:remember|recall)\b(?! me\b| to\b)"
    r"|\b(?:remember|recall) (?:the time |that time )?(?:when|how|what|where|why|which|who)\b(?! to\b)"
    r"|\b(?:remember|recall) (?:the|our|that) [^.?!\n]{1,60}? (?:we|i|you) "
    r"|\bremember (?!to\b|me\b)[^.!?\n]{1,80}\?"
    r"|(?:^|[.!?] |\bplease )recall (?:the|our|that|this|how|what|when|where|which|who|why)\b"
)


def list_indicators(prompt: str) -> list[str]:
    """Return the hints in a prompt that refer to earlier work, not to this conversation."""
    text = " ".join(prompt.replace("’", "'").lower().split())
    found: list[str] = []
    for name, form, otherwise in _ENGLISH_INDICATORS:
        if not _has_indicator(text, name, form, otherwise):
            continue
        if name in ("remember", "recall") and not re.search(_ASKING, text):
            continue
        if name in ("earlier", "previously", "before") and re.search(_JUST_NOW, text):
            continue
        found.append(name)
    return found


def list_foreign_indicators(prompt: str) -> list[str]:
    """Return the hints in other languages than English."""
    text = " ".join(strip_accents(prompt).lower().split())
    return [name for name, form, otherwise in FOREIGN_INDICATORS if _has_indicator(text, name, form, otherwise)]


def _has_indicator(text: str, name: str, form: str, otherwise: str) -> bool:
    if name not in text:
        return False
    left = re.sub(rf"\b(?:{otherwise})\b", " ", text) if otherwise else text
    return re.search(rf"(?<![\w-])(?:{form})(?![\w-])", left) is not None
