"""The markers by which a conversation asks to be left out."""

import re

_MARKER = re.compile(
    r"<\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>\s*DO\s+NOT\s+INDEX\s+THIS\s+CHAT\s*"
    r"<\s*/\s*INSTRUCTIONS-TO-EPISODIC-MEMORY\s*>"
    r"|<!--\s*everkept\s*:\s*do\s+not\s+index\s*-->",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"<\s*instructions-to-ep|<!--\s*everkept", re.IGNORECASE)
_WORDS = (b"everkept", b"instructions-to-episodic-memory")  # one is in each marker
# Sought from where a row of backslashes begins: from each of them would take the square of it.
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u00([2-7][0-9a-fA-F])|([nrtbf])|(?=[/\"]))")


def has_marker(text: str) -> bool:
    """Whether it asks to be left out, in a quotation too: nobody can tell that from a wish."""
    return "<" in text and bool(_BEGINS.search(text)) and bool(_MARKER.search(text))


def has_marker_within(raw: bytes) -> bool:
    """The same of JSON, or of JSON inside JSON, however it is escaped."""
    folded = raw.lower()
    if not any(word in folded for word in _WORDS):
        return False
    text = raw.decode("utf-8", "replace")
    return has_marker(_ESCAPE.sub(_meant, text) if "\\" in text else text)


def _meant(escape: re.Match[str]) -> str:
    code, blank = escape.groups()
    return chr(int(code, 16)) if code else " " if blank else ""
