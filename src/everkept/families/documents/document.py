"""A document as a record: its id, limits and searchable text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from everkept.core.records import DOCUMENT, Record, Weights
from everkept.core.text import clip_text, compute_digest, find_forbidden, has_control_characters
from everkept.errors import InvalidInput
from everkept.retrieval.profile import SearchProfile
from everkept.values import Value

EXPIRING = "expiring"  # record type of a document with a lifetime
WRITE_TOOL = "write_documents"  # in the change log
MAX_PATH_CHARACTERS = 500  # of a namespace, with a separator before each label
MAX_LABELS = 20
MAX_KEY_CHARACTERS = 500
MAX_VALUE_CHARACTERS = 1_000_000  # of JSON
MAX_TTL_MINUTES = 100 * 365 * 24 * 60  # a hundred years
MAX_TEXT_CHARACTERS = 100_000  # of the searchable text; the rest is not searched

DOCUMENT_PROFILE = SearchProfile(
    kinds=(DOCUMENT,), weights=Weights(name=1.0, context=0.0), reading="any", strategy="hybrid"
)

_VALUE, _TTL, _CREATED = "value", "ttl", "created_at"  # facets
_MINUTE = 60_000_000  # in microseconds

Namespace = tuple[str, ...]


class DocumentWrite(Value):
    """A document to store, or to delete if `value` is None.

    `text` is searched; None stands for all texts of the value, and an empty text hides the document from queries.
    `ttl` is its lifetime in minutes since it was last written or read. With `masked`, secrets in the value are masked
    like those in memories.
    """

    namespace: Sequence[str]
    key: str
    value: Mapping[str, Any] | None
    text: str | None = None
    ttl: float | None = None
    masked: bool = False


class StoredDocument(Value):
    """A stored document. It has a score after a query."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: int
    updated_at: int
    score: float | None = None


def build_document(record: Record, score: float | None = None) -> StoredDocument:
    facets = record.facets
    created_at = facets.get(_CREATED, record.created_at)
    return StoredDocument(
        parse_path(record.scope), record.name or "", facets[_VALUE], created_at, record.updated_at, score
    )


def compute_document_id(path: str, key: str) -> str:
    return f"{DOCUMENT}:{compute_digest(f'{path}//{key}')}"  # a path has no empty label


def format_path(namespace: Sequence[str]) -> str:
    """Return the namespace as one text, such as `/users/ada`. The root is an empty text."""
    labels = list(cast(Sequence[Any], namespace))
    if isinstance(namespace, str) or not all(isinstance(label, str) and label for label in labels):
        raise _build_error("namespace", namespace, "must be a sequence of texts that are not empty")
    path = "".join("/" + label.replace("%", "%25").replace("/", "%2F") for label in namespace)
    if len(path) > MAX_PATH_CHARACTERS or len(namespace) > MAX_LABELS:
        limits = f"at most {MAX_LABELS} labels and {MAX_PATH_CHARACTERS} characters"
        raise _build_error("namespace", namespace, f"must have {limits}")
    if _is_unprintable(path):
        raise _build_error("namespace", namespace, "must not contain control characters")
    return path


def parse_path(path: str) -> Namespace:
    return tuple(label.replace("%2F", "/").replace("%25", "%") for label in path.split("/")[1:])


def list_ancestor_paths(path: str) -> tuple[str, ...]:
    """Return the path and those of all namespaces above it, except the root."""
    places = [number for number, character in enumerate(path) if character == "/"][1:]
    return (*(path[:place] for place in places), path)


def check_key(key: str) -> None:
    if not isinstance(cast(Any, key), str) or not key or len(key) > MAX_KEY_CHARACTERS or _is_unprintable(key):
        rule = f"must be a text of 1 to {MAX_KEY_CHARACTERS} characters without control characters"
        raise _build_error("key", key, rule)


def build_values(write: DocumentWrite, path: str) -> dict[str, Any]:
    """Return the fields of the record. Raise InvalidInput for a value that is not JSON."""
    value = _clean_value(write.value)
    if write.ttl is not None and not _is_lifetime(write.ttl):
        raise _build_error("ttl", write.ttl, f"must be a number of minutes above 0, and at most {MAX_TTL_MINUTES:,}")
    text = describe_value(value) if write.text is None else write.text
    if find_forbidden(text):
        text = "".join(character for character in text if not find_forbidden(character))
    facets = {_VALUE: value} | ({} if write.ttl is None else {_TTL: write.ttl})
    return {
        "name": write.key,
        "type": None if write.ttl is None else EXPIRING,
        "scope": path,
        "tags": list_ancestor_paths(path),
        "text": text[:MAX_TEXT_CHARACTERS],
        "facets": facets,
    }


def mark_restored(values: dict[str, Any], at: int) -> dict[str, Any]:
    """Return the fields of a document that was deleted before, so its record is older than the document."""
    return {**values, "facets": {**values["facets"], _CREATED: at}}


def keep_created(values: dict[str, Any], record: Record) -> dict[str, Any]:
    """Return the fields of a document that is overwritten and keeps the time when it was created."""
    if _CREATED not in record.facets:
        return values
    return mark_restored(values, record.facets[_CREATED])


def is_expired(record: Record, accessed_at: int, now: int) -> bool:
    ttl = record.facets.get(_TTL)
    return ttl is not None and max(record.updated_at, accessed_at) + ttl * _MINUTE <= now


def describe_value(value: Any) -> str:
    """Return the texts and numbers of a value, each on a line after its name. A single one has no name."""
    leaves = list(_list_leaves(value, ""))
    if len(leaves) == 1:
        return leaves[0][1]
    return "\n".join(f"{name}: {text}" if name else text for name, text in leaves)


def _list_leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in cast(dict[str, Any], value).items():
            yield from _list_leaves(each, f"{name} {key}".strip())
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            yield from _list_leaves(each, name)
    elif value is not None and not isinstance(value, bool) and str(value).strip():
        yield name, str(value)


def _clean_value(value: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _build_error("value", value, "must be a mapping with JSON values")
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        text.encode()
        kept: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _build_error("value", dict(value), "must be a mapping with JSON values") from error
    if len(text) > MAX_VALUE_CHARACTERS:
        raise _build_error("value", text, f"must have at most {MAX_VALUE_CHARACTERS:,} characters")
    return kept


def _is_lifetime(ttl: object) -> bool:
    return isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl <= MAX_TTL_MINUTES


def _is_unprintable(text: str) -> bool:
    return has_control_characters(text) or find_forbidden(text) is not None


def _build_error(argument: str, value: object, rule: str) -> InvalidInput:
    return InvalidInput(f"`{argument}` is {clip_text(repr(value), 200)}.", hint=f"It {rule}.", argument=argument)
