"""Classification of a value: placeholder, word of code, word of prose, or secret."""

import math
from collections import Counter

from everkept.patterns import compile_late

# What instructions have in place of a secret: within it, or instead of it.
FILLERS = ("xxxx", "your", "...", "…", "***", "placeholder", "redacted", "changeme", "change_me")
PLACEHOLDER_WORDS = frozenset(
    {
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "str",
        "string",
        "bytes",
        "required",
        "optional",
        "empty",
        "unset",
        "missing",
        "default",
        "password",
        "passwd",
        "pass",
        "secret",
        "token",
        "key",
        "api_key",
        "apikey",
        "value",
        "test",
        "todo",
        "tbd",
        "n/a",
        "hidden",
        "example",
        "replace_me",
        "dummy",
        "xxx",
        "enabled",
        "disabled",
        "unknown",
        "invalid",
        "changeit",
        "prompt",
    }
)
_MASK_BEGINS = "[masked:"
_OWN_NAMES = ("password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "apikey")

# Signs of a template, which is written where a secret would be.
_REFERENCE = compile_late(
    r"<[^\n]*>$"
    r"|\$(?:\{|\(|\$|[A-Za-z_]\w*+(?:[^\w!?#%^~+*]|$)|[0-9@*?#](?![A-Za-z0-9]))"
    r"|\{(?:\{|[\w .:!-]*\})"
    r"|\[(?:[^\[\]\n]*\]$|$)"
    r"|%(?:\(|[A-Za-z_]\w*%|[sdrif]\b|[{%])"
    r"|\*+(?:$|[^\w])"
    r"|![A-Za-z]+$|ENC\[|op://|@@?\w+@"
)
_VARIABLE = compile_late(
    r"[A-Z][A-Z0-9]*_[A-Z0-9_]*|&?[A-Za-z_]\w*(?:(?:\.|\?\.|->|::)[A-Za-z_]\w*)+!?|[A-Za-z_][\w.]*\[\w*\]"
)
_ENVIRONMENT = compile_late(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*")
_PATH = compile_late(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]|[a-z][a-z0-9+.-]*://")
_BASE64 = compile_late(r"[A-Za-z0-9+/]{40,}={0,2}")
_METHOD = compile_late(
    r"(?i)(?:sha|md|aes|rsa|hmac|argon|bcrypt|scrypt|pbkdf|base|oauth|utf)-?\d"
    r"|(?:[rhep]s-?(?:256|384|512)|(?:ed|x)-?(?:25519|448)|x-?509)(?![A-Za-z0-9])"
)
# Words of prose with digits: dates, durations, versions, ordinals, names of products.
_MEASURE = compile_late(r"(?i)v?\d[\d.,:/_-]*(?:[a-z%]{0,7}|T[\d:.]+Z?)[.,:;!?]*|1password|[a-z]+-\d{1,3}")
_MIXED_RUN = compile_late(r"(?=[A-Za-z]{0,99}\d)(?=\d{0,99}[A-Za-z])[A-Za-z0-9]{8,}+")
_SEGMENT = compile_late(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SYMBOLS = frozenset("!@#$%^*+?~")
_PLAIN_WORDS = compile_late(r"[A-Za-z]++(?:[ _-][A-Za-z]++)*+")
_VOWELS = frozenset("aeiouyAEIOUY")


def flatten(text: str) -> str:
    """Return the text with one byte for each character, which is read fastest. Other characters become `?`."""
    return text if text.isascii() else text.encode("latin-1", "replace").decode("latin-1")


def is_placeholder(body: str) -> bool:
    stands_for = body.lower() in PLACEHOLDER_WORDS or has_filler(body) or is_reference(body)
    return not body or stands_for or body.startswith(_MASK_BEGINS)


def has_filler(body: str) -> bool:
    """Return whether the text replaces a secret, such as `xxxx` in instructions."""
    lowered = body.lower()
    return any(filler in lowered for filler in FILLERS)


def is_reference(body: str) -> bool:
    """Return whether the text is a template or a variable, which is filled in elsewhere."""
    found = _REFERENCE.match(body)
    return bool(found) and not (body[0] == "$" and found.group()[1:].isalnum() and is_random(body[1:]))


def is_code(body: str, following: str) -> bool:
    """Return whether the value is a placeholder, a path, a variable, a call or the name of a method."""
    if is_placeholder(body) or following in {"(", "["}:
        return True
    if _PATH.match(body):
        return not (_BASE64.fullmatch(body) and is_random(body))
    if _VARIABLE.fullmatch(body):
        parts = body.split(".")
        is_file_name = len(parts[-1]) <= 4 and parts[-1].islower()
        return is_file_name or not any(len(part) >= 16 and is_random(part) for part in parts)
    return bool(_METHOD.match(body))


def is_elsewhere(body: str) -> bool:
    """Return whether the value says where a secret is: a path, or the name of a variable of the environment."""
    return bool(_PATH.match(body) or _ENVIRONMENT.fullmatch(body))


def names_itself(body: str) -> bool:
    """Return whether the value is a word such as `bad_password`, which is a message or a field."""
    lowered = body.lower()
    return any(name in lowered for name in _OWN_NAMES) and bool(_PLAIN_WORDS.fullmatch(body))


def is_random(body: str) -> bool:
    """Return whether letters and digits are mixed as no word has them."""
    if _MIXED_RUN.search(body):
        return True
    return len(body) >= 20 and all(any(test(c) for c in body) for test in (str.islower, str.isupper, str.isdigit))


def is_scrambled(body: str) -> bool:
    """Return whether upper and lower case letters change as no word or name in code has them."""
    body = body.lstrip("[{(<")
    if len(body) < 8 or not body.isascii() or not body.isalpha() or body.isupper() or body[1:].islower():
        return False
    segments = _SEGMENT.findall(body)
    odd = sum(len(segment) == 1 or not _VOWELS & set(segment) for segment in segments)
    return odd >= 2 or odd * 2 >= len(segments)


def is_password(body: str) -> bool:
    """Return whether a value in an assignment looks like a password, and not like a word."""
    has_letter = any(c.isalpha() for c in body)
    has_other = any(c.isdigit() or c in _SYMBOLS for c in body)
    return len(body) >= 6 and ((has_letter and has_other) or is_scrambled(body))


def is_password_in_prose(body: str) -> bool:
    """Return whether a word of a sentence can only be a password."""
    return is_password(body) and not _MEASURE.fullmatch(body) and not _METHOD.match(body) and not body.endswith("()")


def is_strong(body: str) -> bool:
    """Return whether a value is a secret where only its look and its place say so."""
    body = body.lstrip("[{(<")
    if len(body) < 8 or not is_password_in_prose(body):
        return False
    return any(c.isdigit() for c in body) or any(c in _SYMBOLS for c in body[:-1]) or is_scrambled(body)


def measure_entropy(body: str) -> float:
    """Return the entropy in bits per character."""
    size = len(body)
    return -sum(count / size * math.log2(count / size) for count in Counter(body).values()) if size else 0.0
