"""Rules for names and texts that every family shares, JSON objects in a text, and the hash of a text."""

import json
import unicodedata
from collections.abc import Sequence
from typing import Any, cast

from everkept.patterns import compile_late

# hashlib loads OpenSSL for functions that are not used here, which costs a hook 3 ms.
try:
    from _blake2 import blake2b
except ImportError:  # not CPython
    from hashlib import blake2b


# Tab, line feed and carriage return are part of ordinary text, but not of a name.
_CONTROL = compile_late("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_TEXT = compile_late("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def parse_json_object(text: str | bytes | None) -> dict[str, Any] | None:
    """Return the JSON object that the text is, or None for any other text."""
    try:
        value: Any = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


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


def join_words(words: Sequence[str]) -> str:
    """Return the words as a list in a sentence, such as `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


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


_CONTROL_REPLACEMENTS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Characters without a picture, or that turn the order of others. Joiners inside a word or emoji belong to its spelling.
INVISIBLE = compile_late(
    "[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f]|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200b-\u200f])"
)


def replace_controls(text: str) -> str:
    """Return a text for the terminal: without control characters, and with marks for invisible ones."""
    shown = text.translate(_CONTROL_REPLACEMENTS)
    return shown if shown.isascii() else INVISIBLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", shown)


_SIZE_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def format_size(size: int) -> str:
    """Format a size for people: `512 bytes`, `3.4 MB`, `340 MB`."""
    amount, power = float(size), 0
    while amount >= 999.5 and power < len(_SIZE_UNITS) - 1:
        amount, power = amount / 1000, power + 1
    digits = 0 if power == 0 or amount >= 99.95 else 1
    return f"{amount:,.{digits}f} {_SIZE_UNITS[power]}"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address leads to this machine."""
    from ipaddress import ip_address

    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
