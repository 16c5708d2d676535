"""Texts for databases that store no NUL: it is written as two other characters."""

import re

ESCAPE, _NUL = "\x01", "\x01\x02"
_ESCAPED = re.compile(f"{ESCAPE}(.)", re.DOTALL)


def kept(text: str) -> str:
    """A string as the database has it."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\0", _NUL)
    return text


def given(text: str) -> str:
    """What `kept` made of it, taken back."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == _NUL[1] else ESCAPE, text)
