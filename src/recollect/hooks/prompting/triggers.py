"""Prompts that ask for the past by name, and what of it they ask for."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Wanted = Literal["implementation", "memory", "last work", "discussion"]

LONGEST_TOPIC = 200  # characters


class Trigger(NamedTuple):
    """What a prompt wants from the past. `topic` may be empty: then all of the prompt says it."""

    wanted: Wanted
    topic: str


def triggered(prompt: str) -> Trigger | None:
    """The first form that a prompt has; it may stand in any sentence of it."""
    text = prompt.replace("’", "'")
    for wanted, pattern in _patterns(text.lower()):
        if found := pattern.search(text):
            return Trigger(wanted, _cleaned(found["topic"]))
    return None


# In a form a blank is any space, parentheses capture nothing, and a topic is what it is about.
_PARTS = {
    "<topic>": r"(?P<topic>[^?!\n]{1,200})",
    "<some topic>": r"(?P<topic>[^?!\n]{1,200}?)",
    "<we>": r"(we|i|you|they)",
    "<ours>": r"(we|i)",
    "<did>": r"( did| have| had|'d|'ve)",
    "<had>": r"( had| have|'d|'ve)?",
    "<once>": r"(before|last (time|week|month|year|session)|previously|back then|earlier"
    r"|the other day|in the past|yesterday|the first time|(\w+|a while) ago)",
    "<made>": r"(did|do|done|solved|implemented|handled|built|fixed|made|wrote|written)",
    "<said>": r"(discussed|discuss|talked|talk|spoke|agreed|decided|settled|chose|picked|mentioned"
    r"|planned|wanted|tried|came up with)",
    "<worked>": r"(work|touch|look|chang|edit|did|do|saw|deal|built|build|debug|ran|run|deploy"
    r"|updat|fix|us)(ed|e|t|ged)?( (on|at|in|with))?",
}
# Each with words of which one must be there: a pattern takes longer to make than to look for those.
_FORMS: tuple[tuple[Wanted, tuple[str, ...], str], ...] = (
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
        r"what (did|have) <ours> (do|done) (about|on|with|in|to|for) <some topic> <once>",
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
        r"how(<did> <we>| <we><had>) <some topic> <once>",
    ),
    ("implementation", ("how did we ", "how did i ", "how'd we "), r"how<did> <ours> <topic>"),
    ("implementation", ("way we", "way i"), r"way <ours><had> <made> <some topic> <once>"),
    (
        "implementation",
        ("how was", "how were"),
        r"how (was|were) <some topic> <made> <once>",
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
        r"what( was| were| is|'s) (that|the|those|this|our) <some topic> (that )?<we><had> <said>",
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
        r"(which|what) <some topic> did <ours> (choose|pick|decide|settle|go|agree|use|end up)",
    ),
    (
        "discussion",
        ("ever", "already", "previously"),
        r"(did|have|had) <ours> (ever|already|previously) <topic>",
    ),
    (
        "discussion",
        ("we discussed", "we talked", "we agreed", "we decided", "we settled"),
        r"(that|the|those) <some topic> (that )?<ours><had> "
        r"(discussed|talked about|agreed on|decided on|settled on)",
    ),
)


def _patterns(lowered: str) -> Iterator[tuple[Wanted, "re.Pattern[str]"]]:
    for wanted, signs, form in _FORMS:
        if any(sign in lowered for sign in signs):
            yield wanted, re.compile(rf"(?<![\w'-]){_expression(form)}(?!\w)", re.IGNORECASE)


def _expression(form: str) -> str:
    for name, part in _PARTS.items():
        form = form.replace(name, part)
    return form.replace("(", "(?:").replace("(?:?P", "(?P").replace(" ", r"\s+")


def _cleaned(topic: str) -> str:
    """Without the rest of the text behind its sentence, and without when it was."""
    sentence = re.split(r"[.;:]\s|\s[-–—]\s|, (?:and|but|so|because|then) ", topic, maxsplit=1)[0]
    words = re.sub(
        r"\b(?:last (?:time|week|month|year|session|night|\w+day)|before|previously|back then"
        r"|earlier|the other day|in the past|yesterday|\w+ (?:days?|weeks?|months?|years?) ago"
        r"|together|again)\b",
        " ",
        sentence[:LONGEST_TOPIC],
        flags=re.IGNORECASE,
    )
    return " ".join(words.split()).strip(" ,.:;-'\"`")
