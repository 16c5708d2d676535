"""Keys, tokens and passwords in a text, and the masks that replace them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from everkept.core.secret_forms import find_argument_spans, find_known_forms, find_marked_forms
from everkept.core.secret_values import (
    MASK_BEGINS,
    find_label,
    find_named_secrets,
    flatten,
    is_placeholder,
    is_random,
    is_strong,
    is_whole_secret,
)
from everkept.errors import InvalidInput
from everkept.patterns import compile_late

_AWS_SECRET = compile_late(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_NEAR_CHARACTERS = 200  # characters between the id of a key and its secret

_PEM_MARK = compile_late(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = compile_late(r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)++")

_URL = compile_late(
    r"://[^\s/:@?#\"'<>]{0,200}+:(?:([^\s/\"'<>]{1,1000})@(?=[\w\[.$<{])|(?!\d{1,5}/)([^\s@\"'<>]{1,200})@(?=[\w\[.]))"
)
_MASK = compile_late(r"\[masked: [a-z ]+\]")
_MAX_MASK_CHARACTERS = 60
_KINDS = {"password": "password", "api key": "api key", "secret": "secret", "token": "token"}
_AUTHORIZATION_KEY = compile_late(r"(?i)authorization\s*$")


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
    """Spans of the secrets with their kinds, in order and without overlaps."""
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
    """Meaning of a key for the values below it, at any depth."""

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
    """Return the name, with a number if it is taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name} {number}"
    return candidate


def _find_label(key: str) -> _Label | None:
    """The word for a secret that a key ends with."""
    if _AUTHORIZATION_KEY.search(key):
        return _Label("authorization", is_own=True)
    kind = find_label(key)
    return _Label(kind, is_own=True) if kind else None


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
    """Return whether the key right above a value makes all of it a secret. Masked text is not one."""
    if label is None or not label.is_own or label.name not in _KINDS:
        return False
    return is_whole_secret(text.strip(), label.name)


def _merge_spans(text: str) -> list[_Span]:
    """Secrets in their order; where two overlap they are one, of the kind that is more exact."""
    flat = flatten(text)
    found = [(span.start, span.end, rank, span.kind) for rank, look in enumerate(_FINDERS) for span in look(text, flat)]
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
    return [span for span in joined if not _is_masked(text, span)]


def _is_masked(text: str, span: _Span) -> bool:
    """Return whether a mask is in the span, or the span begins in a mask."""
    if _MASK.search(text, span.start, span.end + 1):
        return True
    before = text.rfind(MASK_BEGINS, max(0, span.start - _MAX_MASK_CHARACTERS), span.start)
    return before >= 0 and "]" not in text[before : span.start]


def _find_private_keys(text: str, flat: str) -> Iterator[_Span]:
    """Whole blocks, and those whose end is cut off as far as they look like one."""
    if "PRIVATE KEY" not in flat:
        return
    marks = list(_PEM_MARK.finditer(text))
    for i, mark in enumerate(marks):
        if mark[1] == "BEGIN":
            if i + 1 < len(marks) and marks[i + 1][1] == "END":
                yield _Span(mark.start(), marks[i + 1].end(), "private key")
            elif body := _PEM_BODY.match(text, mark.end()):
                yield _Span(mark.start(), body.end(), "private key")


def _find_url_passwords(text: str, flat: str) -> Iterator[_Span]:
    at = flat.find("://")
    while at >= 0:
        if match := _URL.match(text, at):
            group = match.lastindex or 1
            body = match[group]
            if not is_placeholder(body) and (group == 1 or any(map(is_strong, body.split("/")))):
                yield _Span(*match.span(group), "url password")
        at = flat.find("://", at + 3)


def _find_arguments(text: str, flat: str) -> Iterator[_Span]:
    for start, end in find_argument_spans(flat):
        yield _Span(start, end, "password")


def _find_forms(text: str, flat: str) -> Iterator[_Span]:
    """Words with the form of a secret, and what looks like the secret half near the id of an AWS key."""
    done = 0
    for start, end, kind in find_known_forms(flat):
        yield _Span(start, end, kind)
        if kind == "aws access key":
            first, last = max(done, start - _AWS_NEAR_CHARACTERS), end + _AWS_NEAR_CHARACTERS
            for match in _AWS_SECRET.finditer(flat, first, last):
                if is_random(match.group()) and not match.group().islower():
                    yield _Span(*match.span(), "aws secret key")
            done = end


def _find_marks(text: str, flat: str) -> Iterator[_Span]:
    yield from (_Span(*found) for found in find_marked_forms(flat))


def _find_named(text: str, flat: str) -> Iterator[_Span]:
    yield from (_Span(*found) for found in find_named_secrets(text, flat))


_FINDERS: tuple[Callable[[str, str], Iterator[_Span]], ...] = (
    _find_private_keys,
    _find_forms,
    _find_marks,
    _find_url_passwords,
    _find_arguments,
    _find_named,
)


T = TypeVar("T")
LARGE_CHARACTERS = 64 * 1024  # characters; more are masked in a thread, so that other calls get their answers


async def mask_apart(characters: int, mask: Callable[[], T]) -> T:
    """Run the masking of so many characters, in a thread if they are many."""
    if characters <= LARGE_CHARACTERS:
        return mask()
    from asyncio import to_thread

    return await to_thread(mask)


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
                hint="An id is stored unchanged. Use another one.",
                argument=argument,
            )

    def _note_kinds(self, cleaned: T, kinds: Sequence[str]) -> T:
        self.kinds |= dict.fromkeys(kinds)
        return cleaned
