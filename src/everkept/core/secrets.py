"""Keys, tokens and passwords in a text: where they are, and the masks that replace them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from everkept.core.secret_forms import (
    FORMS,
    LOOSE_FORMS,
    PLACEHOLDER_WORDS,
    TEMPLATE_MARKS,
    find_argument_spans,
    has_filler,
    is_placeholder,
)
from everkept.errors import InvalidInput
from everkept.patterns import compile_late

_TELEGRAM = compile_late(r"(?:(?<=bot)|(?<![\w:]))\d{8,10}:AA[\w-]{33,}+")
_AZURE = compile_late(r"(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{40,}={0,2})")
_AWS_ID = compile_late(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}")
_AWS_SECRET = compile_late(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_NEAR_CHARACTERS = 200  # characters between the id of a key and its secret

_PEM_MARK = compile_late(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = compile_late(r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+")

_URL = compile_late(r"://[^\s/:@?#\"'<>]*+:([^\s/\"'<>]+)@(?=[\w\[.$<{])")
_NETRC = compile_late(r"\b(?:machine\s++\S++|default)\s++login\s++\S++\s++(?:account\s++\S++\s++)?password\s++(\S++)")
_AUTHORIZATION = compile_late(
    r"(?i)(authorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?)?"
    r"(?<![A-Za-z0-9])(?:bearer|basic)[ \t]{1,4}([A-Za-z0-9._~+/=-]{6,}+)"
)

# What a secret is assigned to: its name, the sign between, and then the value.
_NAME = compile_late(
    r"(?i)(?P<password>password|passwd|passphrase|passcode|(?<![a-z])(?:pass|pwd)(?![a-z]))"
    r"|(?P<key>(?:api|access|private|signing|encryption|account)[_ -]?key)"
    r"|(?P<secret>secret)|(?P<token>token)"
)
_SIGN = compile_late(
    r"(?i)(?:[_-]?access)?(?:[_-]?(?:key|value))?(?:_?\d{1,3})?\\?(?:[\"'`]\]?)?"
    r"(?:(?:[ \t]{0,4}:[ \t]{0,4}(?:str|string|bytes)\b(?:[ \t]?\|[ \t]?None)?)?"
    r"[ \t]{0,8}(?::=|=>|={1,3}|:)[ \t]{0,8}|[ \t]{1,4}is[ \t]{1,4}|>)"
)
_FLAG = compile_late(r"(?:^|(?<=\s))--[a-z-]{0,30}$")  # what stands before the name of an option
_QUOTED = compile_late(r"(?P<quote>\\?[\"'`])(?P<value>[^\n]{1,200}?)(?P=quote)")
_BARE = compile_late(r"\\?[\"'`]?(?P<value>[^\s\"'`,;()<>{}|\\&]{1,200}+)")
_MAX_VALUE_CHARACTERS = 200  # characters of a value that are judged; what follows them goes the same way
_WHOLE = compile_late(r"(?P<value>[^\s\"'`,;()<>{}|\\&]++)")
_BLANK = compile_late(r"[ \t]{1,4}(?=\S)")
_SENTENCE_ENDS = ".,:!?"

_MASK = compile_late(r"\[masked: [a-z ]+\]")
_MASK_BEGINS = "[masked:"
_VARIABLE = compile_late(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_][\w.]*\[\w*\]")
_PATH = compile_late(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]|[a-z][a-z0-9+.-]*://")
_METHOD = compile_late(
    r"(?i)(?:sha|md|aes|rsa|hmac|argon|bcrypt|scrypt|pbkdf|base|oauth|utf)-?\d"
    r"|(?:[rhe]s-?(?:256|384|512)|(?:ed|x)-?(?:25519|448)|x-?509)(?![A-Za-z0-9])"
)
_MIXED_RUN = compile_late(r"(?=[A-Za-z]{0,99}\d)(?=\d{0,99}[A-Za-z])[A-Za-z0-9]{8,}+")

# What may follow such a name in the key of an object that holds the secret itself, and what in its
# place only says where the secret is.
_KEY_ENDS = compile_late(r"(?i)(?:[_ -]?access)?(?:[_ -]?(?:key|value))?s?(?:[_ -]?\d{1,3})?[\s:]*$")
_AUTHORIZATION_KEY = compile_late(r"(?i)authorization\s*$")
_REFERENCE = compile_late(r"<.*>|\$\{.*\}|\$\w+|%\w+%|\{.*\}|\[[^\[\]]*\]|\*+|[A-Z][A-Z0-9]*_[A-Z0-9_]*", re.DOTALL)
_KINDS = {"password": "password", "api_key": "api key", "secret": "secret", "token": "token"}


class _Span(NamedTuple):
    start: int
    end: int
    kind: str


def mask_text(text: str) -> tuple[str, list[str]]:
    """The text with each secret replaced by its kind in brackets, and the kinds that were found.

    Masking what was masked changes nothing.
    """
    spans = _merge_spans(text)
    if not spans:
        return text, []
    parts: list[str] = []
    at = 0
    for start, end, kind in spans:
        parts += [text[at:start], f"[masked: {kind}]"]
        at = end
    return "".join([*parts, text[at:]]), list(dict.fromkeys(span.kind for span in spans))


def find_secrets(text: str) -> list[tuple[int, int, str]]:
    """Where the secrets stand, in order and apart from each other, each with its kind."""
    return [(span.start, span.end, span.kind) for span in _merge_spans(text)]


def mask_json(value: Any) -> tuple[Any, list[str]]:
    """A value of JSON without secrets in its strings and keys, and the kinds that were found.

    What stands under a key such as `password` goes as a whole, in a list too; a key that is a
    secret is masked by itself, and none gets lost where two become the same. Tuples stay tuples.
    Masking what was masked changes nothing.
    """
    kinds: dict[str, None] = {}
    return _mask_value(value, None, kinds), list(kinds)


class _Label(NamedTuple):
    """What a key says of the value below it, right there or further down."""

    name: str
    is_own: bool


def _mask_value(value: Any, label: _Label | None, kinds: dict[str, None]) -> Any:
    if isinstance(value, Mapping):
        return _mask_object(cast(Mapping[str, Any], value), label, kinds)
    if isinstance(value, list | tuple):
        items = cast(Iterable[Any], value)
        kept = [_mask_value(item, label, kinds) for item in items]
        return tuple(kept) if isinstance(value, tuple) else kept
    if isinstance(value, str):
        text, found = _mask_text(value, label)
        kinds |= dict.fromkeys(found)
        return text
    is_password = label is not None and label.name == "password"
    if is_password and isinstance(value, int | float) and _is_whole_secret(str(value), label):
        kinds["password"] = None
        return "[masked: password]"
    return value


def _mask_object(values: Mapping[str, Any], label: _Label | None, kinds: dict[str, None]) -> dict[str, Any]:
    below = label and _Label(label.name, is_own=False)
    cleaned = {key: mask_text(key) for key in values}
    taken = {key for key, (_, found) in cleaned.items() if not found}
    result: dict[str, Any] = {}
    for key, (name, found) in cleaned.items():
        if found:
            kinds |= dict.fromkeys(found)
            name = _make_unique(name, taken)
            taken.add(name)
        result[name] = _mask_value(values[key], _find_label(name) or below, kinds)
    return result


def _make_unique(name: str, taken: set[str]) -> str:
    """The name with a number where it is taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name} {number}"
    return candidate


def _find_label(key: str) -> _Label | None:
    """The word for a secret that a key ends with."""
    if _AUTHORIZATION_KEY.search(key):
        return _Label("authorization", is_own=True)
    names = list(_NAME.finditer(key))
    if not names or not _KEY_ENDS.match(key, names[-1].end()):
        return None
    kind = names[-1].lastgroup or "secret"
    return _Label("api_key" if kind == "key" else kind, is_own=True)


def _mask_text(text: str, label: _Label | None) -> tuple[str, list[str]]:
    if label is None:
        return mask_text(text)
    # Read as an assignment to a word that is never masked itself.
    prefix = f"{label.name}: "
    line, kinds = mask_text(prefix + text)
    kept = line.removeprefix(prefix)
    if _is_whole_secret(kept, label):
        kind = _KINDS[label.name]
        return f"[masked: {kind}]", [kind]
    return kept, kinds


def _is_whole_secret(text: str, label: _Label | None) -> bool:
    """Whether all of a value goes because of the key right above it; a mask does not."""
    if label is None or not label.is_own or label.name not in _KINDS:
        return False
    body = text.strip()
    stands_for = body.lower() in PLACEHOLDER_WORDS or has_filler(body) or _REFERENCE.fullmatch(body)
    if len(body) < 4 or stands_for or _PATH.match(body):
        return False
    if label.name != "token":
        return True
    is_word = len(body) < 8 or " " in body or body.isdigit()
    return not is_word and any(c.isdigit() for c in body)


def _merge_spans(text: str) -> list[_Span]:
    """Secrets in their order; where two overlap they are one, of the kind that is more exact."""
    found = [(span.start, span.end, rank, span.kind) for rank, look in enumerate(_FINDERS) for span in look(text)]
    joined: list[_Span] = []
    best = 0
    for start, end, rank, kind in sorted(found):
        if joined and start < joined[-1].end:
            last = joined[-1]
            joined[-1] = _Span(last.start, max(last.end, end), kind if rank < best else last.kind)
            best = min(best, rank)
        else:
            joined.append(_Span(start, end, kind))
            best = rank
    return [span for span in joined if not _MASK.search(text, span.start, span.end + 1)]


def _find_private_keys(text: str) -> Iterator[_Span]:
    """Whole blocks, and those whose end is cut off as far as they look like one."""
    if "PRIVATE KEY" not in text:
        return
    marks = list(_PEM_MARK.finditer(text))
    for i, mark in enumerate(marks):
        if mark[1] == "BEGIN":
            ended = i + 1 < len(marks) and marks[i + 1][1] == "END"
            body = _PEM_BODY.match(text, mark.end())
            cut_off = body.end() if body else mark.end()
            yield _Span(mark.start(), marks[i + 1].end() if ended else cut_off, "private key")


def _find_known_forms(text: str) -> Iterator[_Span]:
    if not any(beginning in text for _, beginning, _ in FORMS):
        return
    for match in _compile_forms().finditer(text):
        kind, beginning, _ = FORMS[(match.lastindex or 1) - 1]
        body = match.group()[len(beginning) :]
        if not has_filler(body) and (kind not in LOOSE_FORMS or _is_random(body)):
            yield _Span(match.start(), match.end(), kind)


@cache
def _compile_forms() -> re.Pattern[str]:
    # Built at the first need: it takes milliseconds, and few texts hold such a beginning.
    forms = "|".join(f"({re.escape(beginning)}{rest})" for _, beginning, rest in FORMS)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{forms})[\w-]*+")


def _find_telegram_tokens(text: str) -> Iterator[_Span]:
    if ":" in text:
        for match in _TELEGRAM.finditer(text):
            yield _Span(*match.span(), "telegram bot token")


def _find_azure_keys(text: str) -> Iterator[_Span]:
    if "Key=" in text:
        for match in _AZURE.finditer(text):
            yield _Span(*match.span(1), "azure storage key")


def _find_aws_secrets(text: str) -> Iterator[_Span]:
    """What looks like the secret half near the id of an access key."""
    if "AKIA" not in text and "ASIA" not in text:
        return
    for key in _AWS_ID.finditer(text):
        first, last = max(0, key.start() - _AWS_NEAR_CHARACTERS), key.end() + _AWS_NEAR_CHARACTERS
        for match in _AWS_SECRET.finditer(text, first, last):
            if _is_random(match.group()) and not match.group().islower():
                yield _Span(*match.span(), "aws secret key")


def _find_url_passwords(text: str) -> Iterator[_Span]:
    if "://" in text:
        for match in _URL.finditer(text):
            if not match[1].startswith(TEMPLATE_MARKS) and not has_filler(match[1]):
                yield _Span(*match.span(1), "url password")


def _find_netrc_passwords(text: str) -> Iterator[_Span]:
    if "login" in text:
        for match in _NETRC.finditer(text):
            if not is_placeholder(match[1]):
                yield _Span(*match.span(1), "password")


def _find_authorizations(text: str) -> Iterator[_Span]:
    lowered = text.lower()
    if "bearer" not in lowered and "basic" not in lowered:
        return
    for match in _AUTHORIZATION.finditer(text):
        in_header, value = match[1], match[2]
        if not is_placeholder(value) and (_is_random(value) or (in_header and not value.islower())):
            yield _Span(*match.span(2), "authorization")


def _find_arguments(text: str) -> Iterator[_Span]:
    for start, end in find_argument_spans(text):
        yield _Span(start, end, "password")


def _find_assignments(text: str) -> Iterator[_Span]:
    """What is given to a name that says it is a secret, where it does not read like a word."""
    lowered = text.lower()
    if not any(part in lowered for part in ("pass", "pwd", "key", "secret", "token")):
        return
    done = 0
    for name in _NAME.finditer(text):
        if name.start() < done:
            continue
        sign = _SIGN.match(text, name.end()) or _find_option_gap(text, name)
        if sign and (found := _find_assigned_value(text, name, sign)):
            done = found[1]
            kind = name.lastgroup or "secret"
            yield _Span(*found, "api key" if kind == "key" else kind)


def _find_assigned_value(text: str, name: re.Match[str], sign: re.Match[str]) -> tuple[int, int] | None:
    """Where the value begins and ends, if it is a secret."""
    quoted = _QUOTED.match(text, sign.end())
    start, end = quoted.span("value") if quoted else _find_bare_value(text, sign.end())
    in_tag = sign.group() == ">"
    if in_tag and not text.startswith("</", end):
        return None
    # A mark at the end may be the sentence's or the secret's: it does not make a secret of a
    # word, but goes with one.
    body_end = end if quoted else start + len(text[start:end].rstrip(_SENTENCE_ENDS))
    judged = _is_quoted_secret if quoted else _is_bare_secret
    if _is_code(text, start, body_end) or not judged(text[start:body_end], name, sign.group()):
        return None
    return _find_bare_value(text, start, _WHOLE) if end - start == _MAX_VALUE_CHARACTERS else (start, end)


def _find_option_gap(text: str, name: re.Match[str]) -> re.Match[str] | None:
    """The blank between an option of a command line and its value."""
    is_option = _FLAG.search(text, max(0, name.start() - 34), name.start())
    return _BLANK.match(text, name.end()) if is_option else None


def _find_bare_value(text: str, at: int, form: re.Pattern[str] = _BARE) -> tuple[int, int]:
    """Where a value without quotes begins and ends, marks of a sentence with it."""
    found = form.match(text, at)
    if found is None:
        return at, at
    start, end = found.span("value")
    masked_before = text.find(_MASK_BEGINS, start, end)
    return start, masked_before if masked_before >= 0 else end


def _is_code(text: str, start: int, end: int) -> bool:
    """Whether the value is a placeholder, a path, a variable, a call or the name of a method."""
    body = text[start:end]
    return (
        is_placeholder(body)
        or bool(_PATH.match(body) or _VARIABLE.fullmatch(body) or _METHOD.match(body))
        or text[end : end + 1] in {"(", "["}
    )


def _is_quoted_secret(body: str, name: re.Match[str], sign: str) -> bool:
    if name.lastgroup == "token":
        return len(body) >= 8 and " " not in body and any(c.isdigit() for c in body)
    is_sentence = " " in body and "=" not in sign and name.group().lower() != "passphrase"
    return len(body) >= 4 and not is_sentence


def _is_bare_secret(body: str, name: re.Match[str], sign: str) -> bool:
    if name.lastgroup != "password":
        return len(body) >= 12 and _is_random(body)
    if len(body) < 6:
        return False
    if body.isdigit():
        return sign == "="
    has_letter = any(c.isalpha() for c in body)
    if has_letter and any(c.isdigit() or c in "!@#$%^*+?~" for c in body):
        return True
    # A line of an environment file, as in DB_PASSWORD=swordfish.
    return body.isalpha() and name.group().isupper() and sign == "="


def _is_random(body: str) -> bool:
    """Whether letters and digits are mixed as no word has them."""
    if _MIXED_RUN.search(body):
        return True
    return len(body) >= 20 and all(any(test(c) for c in body) for test in (str.islower, str.isupper, str.isdigit))


_FINDERS: tuple[Callable[[str], Iterator[_Span]], ...] = (
    _find_private_keys,
    _find_known_forms,
    _find_telegram_tokens,
    _find_azure_keys,
    _find_aws_secrets,
    _find_url_passwords,
    _find_netrc_passwords,
    _find_authorizations,
    _find_arguments,
    _find_assignments,
)


T = TypeVar("T")


class Masker:
    """Replaces secrets by masks, if it is enabled, and remembers their kinds in order."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self.kinds: dict[str, None] = {}

    def mask(self, text: str) -> str:
        return self._note_kinds(*mask_text(text)) if self._enabled else text

    def mask_optional(self, text: str | None) -> str | None:
        return self.mask(text) if text else text

    def mask_all(self, texts: Iterable[str]) -> list[str]:
        return [self.mask(text) for text in texts]

    def mask_json(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Mask the names of values too; a name also tells that its value is a password."""
        if not self._enabled:
            return dict(values)
        cleaned, kinds = mask_json(values)
        return self._note_kinds(cast(dict[str, Any], cleaned), kinds)

    def check_id(self, given: str, argument: str) -> None:
        """Refuse an id with a secret, since an id is stored unchanged; do not repeat the id."""
        if self._enabled and (kinds := mask_text(given)[1]):
            raise InvalidInput(
                f"`{argument}` holds what looks like a secret ({', '.join(kinds)}).",
                hint="It is stored as it is: use another one.",
                argument=argument,
            )

    def _note_kinds(self, cleaned: T, kinds: Sequence[str]) -> T:
        self.kinds |= dict.fromkeys(kinds)
        return cleaned
