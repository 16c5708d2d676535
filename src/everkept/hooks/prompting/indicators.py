"""Words that hint at the past without asking for it: again, like before, the same way."""

import re
from collections.abc import Iterator

from everkept.hooks.prompting.forms import unaccented
from everkept.hooks.prompting.languages import INDICATORS as FOREIGN

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
    return list(_found(text))


def foreign_indicators_in(prompt: str) -> list[str]:
    """Those in other languages than English."""
    text = " ".join(unaccented(prompt).lower().split())
    return [name for name, form, otherwise in FOREIGN if _has(text, name, form, otherwise)]


def _found(text: str) -> Iterator[str]:
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
