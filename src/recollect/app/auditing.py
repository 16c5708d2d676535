"""Secrets that were stored before anybody masked them: where they are, and masking them now."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from recollect.core.ports import Library, RecordStore
from recollect.core.projects import USER
from recollect.core.records import Record, Where
from recollect.core.secrets import masked
from recollect.core.text import clipped, digest, normalised
from recollect.errors import RecollectError

PAGE = 500  # changes of the log that are read at once
EXCERPT = 60  # characters shown around a secret
OLD_VALUE = "old value"

# What people write; the rest of a record is made by the program.
TEXTS = ("name", "text", "tags", "facets")

log = logging.getLogger(__name__)

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a secret stands, what kind it is, and the words around it. Never the secret."""

    project: str
    kind: str
    id: str
    place: str  # the field of the record, or an old value of it in the log
    secrets: list[str]
    excerpt: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, and which projects could not be looked into."""

    findings: list[Finding]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Masked:
    """How many records were masked; `complete` is False while a reader keeps old pages alive."""

    records: int
    complete: bool


async def find_secrets(library: Library, project: str | None = None) -> Audit:
    """In one project, or in all of them and in what belongs to the user."""
    audit = Audit([], [])
    if project is not None:
        audit.findings.extend([f async for f in _findings(await _store(library, project), project)])
        return audit
    for name in [*(p.name for p in await library.projects()), USER]:
        try:
            store = await _store(library, name)
            audit.findings.extend([finding async for finding in _findings(store, name)])
        except RecollectError as error:
            # An archived or damaged project must not hide what is in the others.
            log.warning("project %s is left out: %s", name, error)
            audit.left_out.append(name)
    return audit


async def mask_secrets(library: Library, findings: Sequence[Finding]) -> Masked:
    """Replaces them in the records, the log and the index; nothing keeps what was there."""
    records, complete = 0, True
    by_project: dict[str, dict[str, None]] = {}
    for finding in findings:
        by_project.setdefault(finding.project, {})[finding.id] = None
    for project, ids in by_project.items():
        store = await _store(library, project)
        taken = await _taken(store, list(ids))

        def clean(record_id: str, values: Values, taken: frozenset[str] = taken) -> Values:
            return cleaned(values, record_id if record_id in taken else None)

        redacted = await store.redact(list(ids), clean)
        records += redacted.records
        complete = complete and redacted.complete
    return Masked(records, complete)


def cleaned(values: Values, unlike: str | None = None) -> dict[str, Any]:
    """The values of a record without secrets.

    The key by which a name or text stands only once follows it; with `unlike`, an id, it differs
    from the key of another record that now has the same words.
    """
    found = {name: _masked(values[name], name)[0] for name in TEXTS if name in values}
    if unlike is not None and "name" in found and found["name"]:
        found["name"] = f"{found['name']} {unlike}"
    key = values.get("name_key")
    for name, keyed in (("text", digest), ("text", _text_key), ("name", normalised)):
        if key is not None and values.get(name) and key == keyed(values[name]):
            apart = unlike if name == "text" and unlike else ""
            found["name_key"] = keyed(found[name] + apart)
            break
    return {**values, **found}


def _text_key(text: str) -> str:
    return digest(normalised(text))


async def _store(library: Library, name: str) -> RecordStore:
    if name == USER:
        return await library.user()
    _, store = await library.open(name)
    return store


async def _findings(store: RecordStore, project: str) -> AsyncIterator[Finding]:
    kinds: dict[str, str] = {}
    for record in await store.scan(Where(deleted=None)):
        kinds[record.id] = record.kind
        for place, secrets, excerpt in _in_values(_values(record)):
            yield Finding(project, record.kind, record.id, place, secrets, excerpt)
    after = 0
    while changes := await store.changes(after=after, limit=PAGE):
        after = changes[-1].seq
        for edit in (edit for change in changes for edit in change.edits):
            if edit.subject == "record" and edit.id and edit.before:
                for place, secrets, excerpt in _in_values(edit.before):
                    place = f"{OLD_VALUE} of {place}"
                    kind = kinds.get(edit.id, edit.subject)
                    yield Finding(project, kind, edit.id, place, secrets, excerpt)


def _values(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in TEXTS}


def _in_values(values: Values) -> Iterator[tuple[str, list[str], str]]:
    for name in TEXTS:
        value, kinds = _masked(values.get(name), name)
        if kinds:
            yield name, kinds, _excerpt(value if isinstance(value, str) else str(value))


def _excerpt(text: str) -> str:
    at = max(0, text.find("[masked:") - EXCERPT // 2)
    return ("…" if at else "") + clipped(text[at:], EXCERPT + len("[masked: ]"))


def _masked(value: Any, label: str = "") -> tuple[Any, list[str]]:
    """A value without secrets, and their kinds; its label may tell that it is a password."""
    if isinstance(value, str):
        if label in TEXTS:
            return masked(value)
        text, kinds = masked(f"{label}: {value}")
        return (text.removeprefix(f"{label}: "), kinds) if kinds else (value, [])
    if isinstance(value, Mapping):
        parts = {k: _masked(v, k) for k, v in cast(Mapping[str, Any], value).items()}
        return {k: v for k, (v, _) in parts.items()}, _joined(kinds for _, kinds in parts.values())
    if isinstance(value, list | tuple):
        items = [_masked(item, label) for item in cast(Sequence[Any], value)]
        kept = [item for item, _ in items]
        return tuple(kept) if isinstance(value, tuple) else kept, _joined(k for _, k in items)
    return value, []


def _joined(many: Iterator[list[str]]) -> list[str]:
    return list(dict.fromkeys(kind for kinds in many for kind in kinds))


async def _taken(store: RecordStore, ids: Sequence[str]) -> frozenset[str]:
    """Those that would have the same key as another live record once their secrets are gone."""
    taken: set[str] = set()
    given: set[tuple[object, ...]] = set()
    for record in await store.get(ids):
        if record.name_key is None:
            continue
        key = cleaned(_values(record) | {"name_key": record.name_key})["name_key"]
        mark = (record.kind, record.parent, record.variant, key)
        others = await store.scan(Where(kinds=(record.kind,), name_keys=(key,)))
        is_there = any(
            (o.parent, o.variant) == (record.parent, record.variant) and o.id != record.id
            for o in others
        )
        if is_there or mark in given:
            taken.add(record.id)
        given.add(mark)
    return frozenset(taken)
