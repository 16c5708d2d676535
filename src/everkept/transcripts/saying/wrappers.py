"""What programs put around the words of a person, as `<tag>…</tag>`, and take for granted."""

import re
from collections.abc import Collection

_OPENING = re.compile(r"\s*<([\w-]{1,60})[^<>]{0,200}>")


def without_leading(text: str, tags: Collection[str]) -> str:
    """The text behind the wrappers that it begins with."""
    place = 0
    while (found := _OPENING.match(text, place)) and found[1] in tags:
        end = text.find(f"</{found[1]}", found.end())
        place = text.find(">", end) + 1
        if end < 0 or not place:
            return ""  # It was cut off: nothing of it was said by a person.
    return text[place:].strip()


def without(text: str, tags: Collection[str]) -> str:
    """The text without these wrappers, wherever they stand."""
    for tag in tags:
        text = _without(text, f"<{tag}>", f"</{tag}>")
    return text.strip()


def inside(text: str, tag: str) -> str:
    """What stands in the first wrapper of that name."""
    start = text.find(f"<{tag}>")
    end = text.find(f"</{tag}>", start)
    return text[start + len(tag) + 2 : end].strip() if 0 <= start < end else ""


def _without(text: str, opening: str, closing: str) -> str:
    kept: list[str] = []
    place = 0
    while (start := text.find(opening, place)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(closing)
    return "".join([*kept, text[place:]])
