"""Secret values: those that a name calls a secret, and the kind of a value: placeholder, code, prose or secret.

Names are in assignments in code and settings, and in sentences such as *the password is …*. They are found as plain
words, and one pattern reads what follows each of them. So the text is read once for each word, and every pattern looks
at a bounded piece.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

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
MASK_BEGINS = "[masked:"
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
    return not body or stands_for or body.startswith(MASK_BEGINS)


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


# The words by which names are found, in lower case, with the kind of secret.
_WORDS = {
    **dict.fromkeys(
        ("pass", "pw", "kennwort", "contrase", "senha", "wachtwoord", "heslo", "adgangskode", "salasana"), "password"
    ),
    **dict.fromkeys(("key", "clave"), "api key"),
    **dict.fromkeys(("secret", "auth"), "secret"),
    **dict.fromkeys(("token", "bearer", "sessionid"), "token"),
    **dict.fromkeys(("credential", "zugangsdaten"), "credentials"),
    "basic": "authorization",
}
# Words with letters that most texts do not have: the letter is looked for first.
_LATIN_WORDS = {"ö": ("lösenord", "password"), "ñ": ("contraseña", "password"), "ü": ("schlüssel", "api key")}
_OTHER_SCRIPTS = {
    "ł": ("hasło", "password"),
    "ş": ("şifre", "password"),
    "Ş": ("şifre", "password"),
    "л": ("парол", "password"),
    "パ": ("パスワード", "password"),
    "码": ("密码", "password"),
    "碼": ("密碼", "password"),
    "밀": ("비밀번호", "password"),
}
# The rest of the name behind such a word; what is behind the lookahead must not follow.
_NAME = compile_late(
    r"(?:pass(?:wor[dt]|wd|phrase|code|e)?|pwd?(?![a-z])|kennwort|contrase[ñn]a|senha|wachtwoord|hasło"
    r"|heslo|lösenord(?:et)?|adgangskoden?|salasana|şifre|парол[ья]|パスワード|密码|密碼|비밀번호"
    r"|key|schlüssel|clave|secret|auth(?![_-])|token|bearer|sessionid|credentials?|zugangsdaten)"
    r"(?:[_-]?access)?(?:[_-]?(?:key|value|base|data|token)){0,4}(?:_?\d{1,3})?(?![a-rt-z]|s[a-z])"
)
_BOUNDARY_WORDS = frozenset({"pass", "pwd", "pw", "passe", "senha", "heslo", "clave", "key", "auth"})
_JOINED = ("ssh", "store", "key", "trust", "db", "user", "admin", "root", "api", "auth", "secret", "pg")
_KEY_OWNERS = compile_late(
    r"(?:api|access|private|signing|signature|encryption|account|secret|auth|app|application|license|licence|master|service"
    r"|server|client|sdk|shared|storage|deploy|deployment|webhook|jwt|hmac|session|admin|role|subscription|consumer|io|user"
    r"|personal|function|integration|rest|host|hash|crypto|aes|security|recovery|backup|api-|[a-z]{2,12}ai|de la api)"
    r"[ _.-]?$"
)
_OPEN_KEYS = ("public", "publishable", "cache", "primary", "foreign", "sort", "partition", "idempotency", "pub")

_CLOSE = r"\\?(?:[\"'`]\]?)?"
_SIGN = compile_late(
    r"(?i)"
    # a user and a value in a call for basic authentication
    r"(?P<tuple>=\([\"'][^\"'\n]{1,60}[\"'],[ ]?(?=[\"']))"
    # name = value, name: str = value, **name:** value, name (prod): value, name -> value
    rf"|(?P<assigns>{_CLOSE}(?:[ \t]{{0,4}}:[ \t]{{0,4}}&?(?:str|string|bytes)\b(?:[ \t]?\|[ \t]?none)?)?\*{{0,2}}"
    r"(?:[ ]\([^()\n]{1,20}\)(?=:))?[ \t]{0,8}(?:(?::=|=>|->|→|={1,3}|:(?![?+])|：)|(?<=[ \t])[—–])\*{0,2}[ \t]{0,8})"
    r"|(?P<tag>\"?>(?=[^<>\s]{4,200}</))"
    # "name", "value" and name="name" value="value"
    r"|(?P<pairs>[\"'`](?:,[ \t]?|[ ]value=)(?=[\"'`]))"
    r"|(?P<block>[\"']?[ ]?\{[^{}\"'\n]{0,60}\bdefault[ ]?=[ ]?(?=[\"']))"
    r"|(?P<cell>\*{0,2}[\"'`]?[ \t]{0,8}\|[ \t]{0,8})"
    # the name is value, the name for the shop is value, changed the name to value
    r"|(?P<says>(?:[ ](?:for|of|on|in|at|used|from|für|von|zum|zur|des|der|de|del|para|pour|per|di|da|do|voor|van"
    r"|til|till|для|от|к)(?:[ ][^\s:=.,;!?\"'`|]{1,24}){1,6}?)?"
    r"(?:[ ](?:is|was|are|ist|war|lautet|est|es|è|é|era|är|er|on|je|to)(?:[ ]?:)?[ ]"
    r"|(?<=[^\s])[ ]?(?::|->|→)[ ]|[ ][—–][ ])[ ]{0,3})"
    r"|(?P<particle>は|是|为|為|는[ ]?|은[ ]?)"
    r"|(?P<follows>[\"'`]?[ \t]{1,4}(?=\S))"
)
_SIGN_BEGINS = frozenset(" \t\\\"'`*:=>|-→：{はは是为為는은")
_FLAG = compile_late(r"(?:^|(?<=\s))--?[a-z-]{0,30}$")  # what is before the name of an option
_START = compile_late(r"(?:base64:|\$\{\w{1,60}:?-|b(?=['\"])|@(?=\"))?")  # what may be before the value itself
_QUOTED = compile_late(r"(?P<quote>\\?[\"'`])(?P<value>[^\n]{1,200}?)(?P=quote)")
_BARE = compile_late(r"\\?[\"'`]?(?P<value>[\[{(<]?[^\s\"'`,;()<>{}|\\&、。，；]{1,200}+)")
_WHOLE = compile_late(r"(?P<value>[^\s\"'`,;()<>{}|\\&]++)")
_MAX_VALUE_CHARACTERS = 200  # characters of a value that are judged; what follows them goes the same way
_APP_PASSWORD = compile_late(r"[a-z]{4}(?: [a-z]{4}){3}(?=[ \t]*(?:$|\n))")  # as a mail server gives to a program
_LOGIN = compile_late(r"[ ]?(?P<user>[^\s:/,;]{1,60})(?:[ ]?/[ ]?|:)(?P<value>[^\s,;]{6,200})")
_BEFORE_AS = compile_late(
    r"(?:^|(?<=[\s\"'`]))(?P<value>[^\s\"'`\[\]]{6,100})[\"'`]?[ ](?:as[ ](?:the|its|a|my|our)[ ]|\()$"
)
_SETTING_LINE = compile_late(r"(?:^|[\s;&?\"'])[\w.-]{0,60}$")
_KINDS = {"credentials": "password"}
_SENTENCE_ENDS = ".,:!?"


# A header, or a scheme and a value without one.
_AUTHORIZATION = compile_late(
    r"(?P<header>authorization[\"']?[ \t]{0,4}[:=,][ \t]{0,4}[\"'`]?)?"
    r"(?<![a-z0-9])(?(header)(?:bearer|basic|token|apikey|api-key|splunk|sso-key)|(?:bearer|basic))[ \t]{1,4}"
    r"(?P<value>[a-z0-9._~+/=:-]{6,}+)"
)
_NETRC = compile_late(
    r"\b(?:machine\s{1,9}\S{1,200}|default)\s{1,9}login\s{1,9}\S{1,200}\s{1,9}(?:account\s{1,9}\S{1,200}\s{1,9})?$"
)


class _Name(NamedTuple):
    kind: str
    start: int
    end: int
    text: str  # in lower case


def find_named_secrets(text: str, flat: str) -> Iterator[tuple[int, int, str]]:
    """Yield where a value is given to a name that says it is a secret, and the kind."""
    lowered_flat, lowered = _lower(text, flat)
    done = 0
    for at, kind in _find_words(lowered_flat, lowered):
        if at < done:
            continue
        if lowered[at] in "ab" and (found := _AUTHORIZATION.match(lowered, at)) and _is_authorization(text, found):
            done = found.end()
            yield *found.span("value"), "authorization"
            continue
        name = _NAME.match(lowered, at)
        if (
            name is None
            or text[name.end() : name.end() + 1] not in _SIGN_BEGINS
            or not _is_name(text, lowered, name, kind)
        ):
            continue
        word = _Name(kind, at, name.end(), name.group())
        if found := _find_value(text, lowered, word):
            done = found[1]
            is_azure = (
                kind == "api key" and lowered.endswith(("account", "sharedaccess"), 0, at) and found[1] - found[0] >= 40
            )
            yield *found, "azure storage key" if is_azure else _KINDS.get(kind, kind)


def find_label(key: str) -> str | None:
    """Return the kind of secret that the key of an object names at its end."""
    lowered_flat, lowered = _lower(key, flatten(key))
    for at, kind in reversed(_find_words(lowered_flat, lowered)):
        name = _NAME.match(lowered, at)
        if name and _is_name(key, lowered, name, kind) and not lowered[name.end() :].strip("s: \t"):
            return None if kind == "credentials" else kind
    return None


def _lower(text: str, flat: str) -> tuple[str, str]:
    """Return the text in lower case, each character at its place: flat, and with words in other scripts."""
    if flat is text:
        lowered = text.lower()
        return lowered, lowered
    lowered = flat.encode("latin-1").lower().decode("latin-1")
    if not any(sign in text for sign in _OTHER_SCRIPTS):
        return lowered, lowered
    whole = text.lower()
    return lowered, whole if len(whole) == len(text) else text.replace("İ", "I").lower()


def _find_words(flat: str, whole: str) -> list[tuple[int, str]]:
    looks = [(flat, word, kind) for word, kind in _WORDS.items()]
    looks += [(flat, word, kind) for sign, (word, kind) in _LATIN_WORDS.items() if sign in flat]
    if whole is not flat:
        looks += [(whole, word, kind) for sign, (word, kind) in _OTHER_SCRIPTS.items() if sign in whole]
    found: list[tuple[int, str]] = []
    for lowered, word, kind in looks:
        at = lowered.find(word)
        while at >= 0:
            found.append((at, kind))
            at = lowered.find(word, at + len(word))
    found.sort()
    return found


def _is_name(text: str, lowered: str, name: re.Match[str], kind: str) -> bool:
    """Return whether the word is a whole name there, and not part of another word."""
    at = name.start()
    before = lowered[at - 1 : at]
    if before.isalpha() and name.group() in _BOUNDARY_WORDS:
        is_camel = text[at].isupper() and text[at - 1].islower()
        if not is_camel and not lowered.endswith(_JOINED, 0, at):
            return False
    return kind != "api key" or not name.group().startswith("key") or _is_secret_key(text, lowered, at)


def _is_secret_key(text: str, lowered: str, at: int) -> bool:
    """Return whether what is before `key` says that it is a secret one."""
    if _KEY_OWNERS.search(lowered, max(0, at - 16), at):
        return True
    name = lowered[max(0, at - 30) : at].rstrip("_")
    return text[at : at + 3] == "KEY" and text[at - 1 : at] == "_" and not name.endswith(_OPEN_KEYS)


def _find_value(text: str, lowered: str, name: _Name) -> tuple[int, int] | None:
    """Find where the value begins and ends, if it is a secret."""
    if name.kind == "credentials":
        return _find_login(text, lowered, name)
    if name.kind == "password" and (found := _find_before(text, lowered, name)):
        return found
    sign = _SIGN.match(text, name.end)
    if sign is None:
        return None
    place = sign.lastgroup or ""
    begins = _START.match(text, sign.end())
    at = begins.end() if begins else sign.end()
    if name.kind == "password" and place == "assigns" and (found := _APP_PASSWORD.match(text, at)):
        return found.span()
    quoted = _QUOTED.match(text, at)
    if quoted is None and place in {"pairs", "tuple", "block"}:
        return None
    start, end = quoted.span("value") if quoted else _find_bare(text, at)
    # A mark at the end may be the sentence's or the secret's: it does not make a secret of a
    # word, but goes with one.
    body = text[start:end] if quoted else text[start:end].rstrip(_SENTENCE_ENDS)
    following = text[start + len(body) : start + len(body) + 1]
    if quoted is None and body[:1] in {"{", "<", "("} and (following in {"}", ">", ")"} or not is_random(body)):
        return None
    if is_code(body, following) or names_itself(body) or not _is_secret(text, name, place, sign, body, quoted):
        return None
    return _find_bare(text, start, _WHOLE) if end - start == _MAX_VALUE_CHARACTERS else (start, end)


def _find_bare(text: str, at: int, form: re.Pattern[str] = _BARE) -> tuple[int, int]:
    """Find where a value without quotes begins and ends, including punctuation."""
    found = form.match(text, at)
    if found is None:
        return at, at
    start, end = found.span("value")
    masked_before = text.find(MASK_BEGINS, start, end)
    return start, masked_before if masked_before >= 0 else end


def _is_secret(
    text: str, name: _Name, place: str, sign: re.Match[str], body: str, quoted: re.Match[str] | None
) -> bool:
    if place == "follows":
        return _is_following_secret(text, name, body, quoted)
    if place in {"pairs", "cell", "block", "tuple"}:
        return is_password_in_prose(body) and " " not in body and (place != "cell" or is_strong(body))
    if quoted:
        return _is_quoted_secret(name, place, sign.group(), quoted["quote"], body)
    return _is_bare_secret(text, name, place, sign.group(), body)


def _is_following_secret(text: str, name: _Name, body: str, quoted: re.Match[str] | None) -> bool:
    """Return whether a value directly behind a name is one: of an option, a variable or in a sentence."""
    if body.startswith("-"):
        return False
    if _FLAG.search(text, max(0, name.start - 34), name.start):
        return _is_quoted_secret(name, "", "", "", body) if quoted else _is_bare_secret(text, name, "", "", body)
    if name.text == "password" and _NETRC.search(text, max(0, name.start - 500), name.start):
        return True
    is_variable = text[name.start - 1 : name.start] in {"_", ":"} or text[name.start : name.end].isupper()
    if name.kind == "password":
        return (
            is_strong(body)
            and " " not in body
            and (is_variable or any(c.isdigit() for c in body) or is_scrambled(body))
        )
    return is_strong(body) and len(body) >= 20 and is_random(body)


def _is_quoted_secret(name: _Name, place: str, sign: str, quote: str, body: str) -> bool:
    if name.text == "sessionid":
        return False
    if name.text.startswith("auth"):
        return len(body) >= 16 and is_random(body) and " " not in body
    if name.kind == "token":
        return len(body) >= 8 and (" " not in body or len(body) > 40) and any(c.isdigit() for c in body)
    is_sentence = " " in body and name.text != "passphrase" and ("=" not in sign or quote == "`")
    return len(body) >= 4 and not is_sentence and (place != "says" or len(body) >= 6)


def _is_bare_secret(text: str, name: _Name, place: str, sign: str, body: str) -> bool:
    in_prose = place in {"says", "particle"}
    if name.text.startswith(("sessionid", "auth")) and sign != "=":
        return False
    if name.kind != "password":
        return len(body) >= 12 and is_random(body) and not (name.text == "sessionid" and "-" in body)
    if body.isdigit():
        return sign == "=" and len(body) >= 6
    if in_prose:
        return is_strong(body) if sign.strip() == "to" else is_password_in_prose(body)
    return is_password(body) or (sign == "=" and _is_plain_setting(text, name, body))


def _is_plain_setting(text: str, name: _Name, body: str) -> bool:
    """Return whether a word is the value of a line of settings, such as DB_PASSWORD=swordfish."""
    if len(body) < 6 or not body.isalpha() or not body.isascii():
        return False
    end = name.end + 1 + len(body)
    if text[end : end + 1].strip(";&\"'.!?"):
        return False
    return text[name.start : name.end].isupper() or bool(
        _SETTING_LINE.search(text, max(0, name.start - 70), name.start)
    )


def _is_authorization(text: str, found: re.Match[str]) -> bool:
    value = text[slice(*found.span("value"))]
    if is_placeholder(value):
        return False
    return is_random(value) or (bool(found["header"]) and not value.islower())


def _find_login(text: str, lowered: str, name: _Name) -> tuple[int, int] | None:
    """Find the password that follows a user, such as *credentials: ann / …*."""
    gap = re.match(r"[ ]?(?::|=|are|is|sind|lauten)[ ]|[ ](?=\S)", lowered[name.end : name.end + 10])
    found = _LOGIN.match(text, name.end + gap.end()) if gap else None
    if found is None:
        return None
    body = found["value"]
    is_plain = body.islower() and not any(c.isdigit() for c in body)
    return None if is_placeholder(body) or is_plain or not is_password_in_prose(body) else found.span("value")


def _find_before(text: str, lowered: str, name: _Name) -> tuple[int, int] | None:
    """Find a value before the name, such as *use … as the password*."""
    if not lowered.endswith((" as the ", " as its ", " as a ", " as my ", " as our ", " ("), 0, name.start):
        return None
    found = _BEFORE_AS.search(text, max(0, name.start - 110), name.start)
    if found is None or is_code(found["value"], "") or not is_strong(found["value"]):
        return None
    return found.span("value")


def is_whole_secret(body: str, kind: str) -> bool:
    """Return whether all of a value is a secret because of the key right above it."""
    stands_for = body.lower() in PLACEHOLDER_WORDS or has_filler(body) or is_reference(body)
    if len(body) < 4 or stands_for or is_elsewhere(body):
        return False
    if kind != "token":
        return True
    is_word = len(body) < 8 or " " in body or body.isdigit()
    return not is_word and any(c.isdigit() for c in body)
