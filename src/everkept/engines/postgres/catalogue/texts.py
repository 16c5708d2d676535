"""Which texts PostgreSQL can store."""

from everkept.core.text import clipped
from everkept.errors import InvalidInput


def check(*texts: str | None) -> None:
    """Raises InvalidInput for NUL, and for half of a character."""
    for text in texts:
        if text is not None and not is_storable(text):
            shown = clipped(ascii(text)[1:-1])
            raise InvalidInput(f'"{shown}" holds a character that cannot be stored.', value=shown)


def is_storable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text
