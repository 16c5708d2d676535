"""Prompts that ask for the past by name, and what of it they ask for; and words that hint at it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from everkept.language.foreign_forms import FORMS as FOREIGN_FORMS
from everkept.language.foreign_forms import INDICATORS as FOREIGN_INDICATORS
from everkept.language.foreign_forms import PARTS as FOREIGN_PARTS
from everkept.language.forms import OVERVIEW, Form, Wanted, found_in, unaccented

LONGEST_TOPIC = 200  # characters


class Trigger(NamedTuple):
    """What a prompt wants from the past. `topic` may be empty: then all of the prompt says it.

    What `is_foreign` asks in another language than English.
    """

    wanted: Wanted
    topic: str
    is_foreign: bool = False


def triggered(prompt: str) -> Trigger | None:
    """The first form that a prompt has; it may stand in any sentence of it."""
    text = prompt.replace("’", "'")
    return _first(text, _FORMS, _PARTS) or _first(
        unaccented(text), FOREIGN_FORMS, FOREIGN_PARTS, is_foreign=True
    )


def _first(
    text: str, forms: tuple[Form, ...], parts: dict[str, str], *, is_foreign: bool = False
) -> Trigger | None:
    """One with a topic, or the first one."""
    without_topic = None
    for wanted, found in found_in(text, forms, parts):
        topic = _cleaned(found.groupdict().get("topic") or "")
        trigger = Trigger(wanted, topic, is_foreign)
        if topic or wanted == OVERVIEW:
            return trigger
        without_topic = without_topic or trigger
    return without_topic


_PARTS = {
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
    "<worked>": r"(work|touch|look|chang|edit|did|do|saw|deal|built|build|debug|ran|run|deploy"
    r"|updat|fix|us)(ed|e|t|ged)?( (on|at|in|with))?",
}
_FORMS: tuple[Form, ...] = (
    ("last work", ("last time",), r"last time (that )?<ours> <worked> <topic>"),
    (
        "last work",
        ("we last ", "i last "),
        r"(when|since|where|what)( did)? <ours> last <worked> <topic>",
    ),
    (
        "last work",
        ("left off", "leave off"),
        r"where( did)? <ours>( had)? (left|leave) off( (with|on|at|in))? <topic>",
    ),
    (
        "last work",
        ("where were we", "where was i"),
        r"where (were we|was i) (with|on|at|in) <topic>",
    ),
    (
        "last work",
        ("did we do ", "did i do ", "have we done", "have i done"),
        r"what (did|have) <ours> (do|done) (about|on|with|in|to|for) <topic?> <once>",
    ),
    (
        "last work",
        ("did we do ", "did i do "),
        r"what did <ours> do<lately> (about|on|with|to|for) <topic>",
    ),
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
    (
        "implementation",
        ("how was", "how were"),
        r"how (was|were) <topic?> <made> <once>",
    ),
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
    (
        "discussion",
        ("ever", "already", "previously"),
        r"(did|have|had) <ours> (ever|already|previously) <topic>",
    ),
    (
        "discussion",
        ("we discussed", "we talked", "we agreed", "we decided", "we settled"),
        r"(that|the|those) <topic?> (that )?<ours><had> "
        r"(discussed|talked about|agreed on|decided on|settled on)",
    ),
    (
        "overview",
        ("did we ", "did i ", "have we ", "have i "),
        r"what (did|have) <ours> (do|done|work on|worked on|get done|finish|build|change)"
        r"( here| in this (project|repo|repository))?<lately>+<end>",
    ),
    (
        "overview",
        ("were we", "was i "),
        r"what (were we|was i) (doing|working on|up to)( here)?<lately>*<end>",
    ),
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
        r"remind me (what|where) (we were|i was|we did|i did)( doing| working on| up to)?"
        r"<lately>*<end>",
    ),
)


def _cleaned(topic: str) -> str:
    """Without the rest of the text behind its sentence, and without when it was."""
    sentence = re.split(r"[.;:]\s|\s[-–—]\s|, (?:and|but|so|because|then) ", topic, maxsplit=1)[0]
    words = re.sub(
        r"\b(?:last (?:time|week|month|year|session|night|\w+day)|before|previously|back then"
        r"|earlier|the other day|in the past|yesterday|\w+ (?:days?|weeks?|months?|years?) ago"
        r"|together|again|last session|lately|recently)\b",
        " ",
        sentence[:LONGEST_TOPIC],
        flags=re.IGNORECASE,
    )
    return " ".join(words.split()).strip(" ,.:;-'\"`")


# Words that hint at the past without asking for it: again, like before, the same way.
# Each with a word that must be there, as whole words, and what makes it mean something else.
_INDICATORS: tuple[tuple[str, str, str], ...] = (
    ("again", r"again", r"(?:never|over and over|time and) again|again and again"),
    ("similar", r"similar(?:ly)? to", ""),
    ("before", r"(?:like|as|same as)(?: we did| i did| you did)? before", ""),
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
        r"(?:(?:we|i|you|they|us)\b[^.?!\n]{1,60} earlier|earlier,? we|from earlier"
        r"|earlier (?:work|attempt|approach|discussion|implementation|solution|fix|conversation))",
        r"earlier (?:than|in (?:the|this)|on in)",
    ),
)
# Strings, as most prompts need none of these patterns, and making one takes long.
# What somebody said a moment ago is in the assistant's own context.
_JUST_NOW = (
    r"\b(?:said|mentioned|told you|asked|wrote|noted|described|shown|gave(?: you)?)"
    r"(?: \w+)? (?:earlier|previously|before)\b|\bearlier (?:you|i) \w+|\bearlier today\b"
)
# Who remembers asks; who tells somebody to remember has something stored.
_ASKING = (
    r"\b(?:do|don't|dont|did|can|can't|cant|could|cannot|not|i|we|if you|still|you) "
    r"(?:still |even |really |also )?(?:remember|recall)\b(?! me\b| to\b)"
    r"|\b(?:remember|recall) (?:the time |that time )?(?:when|how|what|where|why|which|who)\b"
    r"(?! to\b)"
    r"|\b(?:remember|recall) (?:the|our|that) [^.?!\n]{1,60}? (?:we|i|you) "
)


def indicators_in(prompt: str) -> list[str]:
    """Those that a prompt has, where they hint at earlier work and not at this conversation."""
    text = " ".join(prompt.replace("’", "'").lower().split())
    return list(_hints(text))


def foreign_indicators_in(prompt: str) -> list[str]:
    """Those in other languages than English."""
    text = " ".join(unaccented(prompt).lower().split())
    return [
        name for name, form, otherwise in FOREIGN_INDICATORS if _has(text, name, form, otherwise)
    ]


def _hints(text: str) -> Iterator[str]:
    for name, form, otherwise in _INDICATORS:
        if not _has(text, name, form, otherwise):
            continue
        if name in ("remember", "recall") and not re.search(_ASKING, text):
            continue
        if name in ("earlier", "previously", "before") and re.search(_JUST_NOW, text):
            continue
        yield name


def _has(text: str, name: str, form: str, otherwise: str) -> bool:
    if name not in text:
        return False
    left = re.sub(rf"\b(?:{otherwise})\b", " ", text) if otherwise else text
    return re.search(rf"(?<![\w-])(?:{form})(?![\w-])", left) is not None
