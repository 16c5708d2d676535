"""Forms of sentences as tables have them: quick to rule out, made into patterns when needed."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

Wanted = Literal["implementation", "memory", "last work", "discussion", "overview"]
OVERVIEW: Wanted = "overview"  # of what was done of late: it has no topic

# What is wanted, words of which one must be there, and the form. A pattern takes longer to make
# than to look for those words.
Form = tuple[Wanted, tuple[str, ...], str]

# A topic is what the form is about, with a question mark no more of it than must be, and an end
# that of a sentence.
_TOPICS = {
    "<topic>": r"(?P<topic>[^?!\n]{1,200})",
    "<topic?>": r"(?P<topic>[^?!\n]{1,200}?)",
    "<end>": r"(?=\s*(?:[?!.,;:\n]|$))",
}


def unaccented(text: str) -> str:
    """As many people type it."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss").replace("’", "'"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def found_in(
    text: str, forms: Iterable[Form], parts: Mapping[str, str]
) -> "Iterator[tuple[Wanted, re.Match[str]]]":
    """The forms that a text has, in their order."""
    lowered = text.lower()
    for wanted, signs, form in forms:
        if any(sign in lowered for sign in signs):
            pattern = rf"(?<![\w'-]){expression(form, {**parts, **_TOPICS})}(?!\w)"
            if found := re.search(pattern, text, re.IGNORECASE):
                yield wanted, found


def expression(form: str, parts: Mapping[str, str]) -> str:
    """Return the regular expression of a form.

    A part may name only parts that come after it. A blank is any space, `…` up to eighty
    characters, so that no text takes long, and parentheses capture nothing.
    """
    for name, part in parts.items():
        form = form.replace(name, part)
    form = form.replace("… ", r"\b[^\n]{0,80}?\b").replace("…", r"\b[^\n]{0,80}?")
    form = form.replace("(", "(?:").replace("(?:?", "(?").replace(r"\(?:", r"\(")
    return form.replace(" ", r"\s+")
