"""Rules for names and texts that every family shares, and the hash of a text."""

import unicodedata

from everkept.patterns import compile_late

# hashlib loads OpenSSL for functions that are not used here, which costs a hook 3 ms.
try:
    from _blake2 import blake2b
except ImportError:  # not CPython
    from hashlib import blake2b


# Tab, line feed and carriage return are part of ordinary text, but not of a name.
_CONTROL = compile_late("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_TEXT = compile_late("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def has_control_characters(name: str) -> bool:
    return bool(_CONTROL.search(name))


def find_forbidden(text: str) -> str | None:
    """Return the first forbidden character of a text, or None."""
    found = _CONTROL_IN_TEXT.search(text)
    if found:
        return found.group()
    return next((c for c in text if "\ud800" <= c <= "\udfff"), None) if _is_broken(text) else None


def compute_name_key(name: str) -> str:
    """Return the form in which two spellings of one name are equal, ignoring case and spaces."""
    return " ".join(unicodedata.normalize("NFC", name).split()).lower()


def compute_digest(text: str) -> str:
    """Return a short digest that distinguishes texts."""
    return blake2b(text.encode("utf-8"), digest_size=12).hexdigest()


def clip_text(text: str, limit: int = 80) -> str:
    """Return the beginning of the text on one line, for messages."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _is_broken(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def format_count(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 turn`, `2,500 turns`."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
