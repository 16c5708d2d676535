"""Words made of words, as identifiers are, and the other ways in which people write them."""

import re
from collections.abc import Sequence

MAX_JOINED = 64  # characters of a compound that someone may write as one word

_LOWER = r"[^\W\d_A-Z]"
# A picture's word has letters and digits, but no parts.
_COMPOUND = re.compile(r"(?<![^\W_])(?!emoji[0-9a-f]{4})[^\W_]+(?:[-_.'][^\W_]+)*")
_JOIN = re.compile(r"[-_.']")
_HEX = re.compile(r"[0-9a-f]{4,}")
# URLs is one part, as are HTTP and Server in HTTPServer.
_PART = re.compile(rf"[A-Z]{{2,}}s(?!{_LOWER})|[A-Z]+(?!{_LOWER})|[A-Z]?{_LOWER}+|\d+")


def compounds(folded: str) -> list[str]:
    """The words of a folded text with what joins their segments, as in `node.js`."""
    return _COMPOUND.findall(folded)


def segments_of(compound: str) -> list[str]:
    return _JOIN.split(compound)


def parts_of(segments: Sequence[str]) -> list[str]:
    """The segments with each broken at its humps and digits."""
    parts: list[str] = []
    for segment in segments:
        if segment.isalpha() and segment.islower():
            parts.append(segment)
            continue
        pieces = _PART.findall(segment)
        # A hash or a key is no row of words.
        is_noise = len(pieces) > 1 and (
            (len(pieces) > 3 and len(segment) < 2.5 * len(pieces)) or _HEX.fullmatch(segment)
        )
        parts += [segment] if is_noise else pieces
    return parts


def joined(compound: str, segments: Sequence[str]) -> str | None:
    """The compound as one word, where someone may write it so."""
    if len(segments) == 1 or len(compound) > MAX_JOINED:
        return None
    word = "".join(segments)
    # A date or a telephone number may be written in one; 1.2.3 is not 123.
    return None if word.isdigit() and "." in compound else word


def other_ways(folded: str) -> dict[str, None]:
    """To write the compounds of a folded text, each once and in its order."""
    ways: dict[str, None] = {}
    for compound in compounds(folded):
        if compound.isalpha() and compound.islower():
            continue
        segments = segments_of(compound)
        parts = parts_of(segments)
        if len(parts) > len(segments):
            ways[" ".join(parts)] = None
        if word := joined(compound, segments):
            ways[word] = None
    return ways
