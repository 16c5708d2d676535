"""Read, write, search and expire the documents of a project."""

import logging
import operator
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from everkept.core.commits import ChangeWriter, Planned, commit, retry
from everkept.core.ports import AccessCount, ProjectChoice, RecordStore, VectorIndexer
from everkept.core.records import (
    DOCUMENT,
    EXPIRE_TOOL,
    Batch,
    Delete,
    Insert,
    Record,
    RecordFilter,
    Restore,
    Step,
    Update,
)
from everkept.core.secrets import Masker, mask_apart
from everkept.core.sessions import ToolCall
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.documents.document import (
    DOCUMENT_PROFILE,
    EXPIRING,
    WRITE_TOOL,
    DocumentWrite,
    Namespace,
    StoredDocument,
    build_document,
    build_values,
    check_key,
    compute_document_id,
    format_path,
    is_expired,
    keep_created,
    mark_restored,
    parse_path,
)
from everkept.retrieval.profile import SearchPlace
from everkept.retrieval.search import search, wait_for_embeddings
from everkept.values import Value, replace

PAGE_RECORDS = 200
MAX_EXPIRED = 1_000  # documents in one sweep

log = logging.getLogger(__name__)


class DocumentQuery(Value):
    """Which documents to return. An empty field does not restrict.

    With `query`, only documents that match by words or by meaning are returned, best first; otherwise the newest first.
    """

    namespace: Sequence[str] = ()
    query: str | None = None
    filter: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    is_access: bool = True  # whether reading prolongs the lifetime


class Documents:
    """The documents of the project of a call."""

    def __init__(
        self,
        choice: ProjectChoice,
        indexer: VectorIndexer,
        clock: Clock,
        *,
        mask_secrets: bool = True,
        time_limit: float | None = None,
    ) -> None:
        self._choice = choice
        self._indexer = indexer
        self._clock = clock
        self._mask_secrets = mask_secrets
        self._time_limit = time_limit

    async def write(self, call: ToolCall, writes: Sequence[DocumentWrite]) -> int:
        """Store and delete documents in one transaction; the last write of a key counts. Return how many changed."""
        wanted: dict[str, dict[str, Any] | None] = {}
        for write in writes:
            path = format_path(write.namespace)
            check_key(write.key)
            values = None if write.value is None else await self._mask_secrets_in(build_values(write, path), write)
            wanted[compute_document_id(path, write.key)] = values
        is_storing = any(values is not None for values in wanted.values())
        store = await (self._choice.open_to_write if is_storing else self._choice.open_to_read)(call, None)

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            found = {record.id: record for record in await store.get(list(wanted), include_deleted=True)}
            planned = [
                _build_steps(document_id, wanted[document_id], found.get(document_id), at) for document_id in wanted
            ]
            return [step for steps in planned for step in steps], sum(map(bool, planned))

        changed = await ChangeWriter(self._clock, WRITE_TOOL, call.session.client).commit(store, plan)
        if is_storing:
            self._indexer.wake(store)
            # A write of the same value changes nothing, but prolongs the lifetime.
            await self._note_accesses(store, [each for each, values in wanted.items() if _is_expiring(values)])
        return changed

    async def get(
        self, call: ToolCall, keys: Sequence[tuple[Sequence[str], str]], *, is_access: bool = True
    ) -> list[StoredDocument | None]:
        """Return the documents of these namespaces and keys, in this order. A missing one is None."""
        ids = [compute_document_id(format_path(namespace), key) for namespace, key in keys]
        store = await self._choice.open_to_read(call, None)
        live = await self._drop_expired(store, await store.get(list(dict.fromkeys(ids))))
        if is_access:
            await self._note_accesses(store, [record.id for record in live if record.type == EXPIRING])
        found = {record.id: build_document(record) for record in live}
        return [found.get(each) for each in ids]

    async def search(self, call: ToolCall, wanted: DocumentQuery) -> list[StoredDocument]:
        """Return matching documents: the best first for a query, otherwise the newest first."""
        for name, number in (("limit", wanted.limit), ("offset", wanted.offset)):
            if number < 0:
                raise InvalidInput(f"`{name}` is {number}.", hint="It must be at least 0.", argument=name)
        store = await self._choice.open_to_read(call, None)
        path = format_path(wanted.namespace)
        where = RecordFilter(kinds=(DOCUMENT,), tags=(path,) if path else ())
        if wanted.filter:
            check_filter(wanted.filter)
            ids = [
                record.id
                async for record in self._scan(store, where)
                if is_match(record.facets["value"], wanted.filter)
            ]
            where = replace(where, ids=tuple(ids))
        if (wanted.query or "").strip():
            await wait_for_embeddings(self._indexer, [store], self._time_limit)
            pairs = self._rank(store, where, wanted.query)
        else:
            pairs = self._list(store, where)
        found: list[tuple[Record, float | None]] = []
        end = wanted.offset + wanted.limit
        async for pair in pairs:
            if len(found) >= end:
                break
            found.append(pair)
        found = found[wanted.offset :]
        if wanted.is_access:
            await self._note_accesses(store, [record.id for record, _ in found if record.type == EXPIRING])
        return [build_document(record, score) for record, score in found]

    async def list_namespaces(self, call: ToolCall) -> list[Namespace]:
        """Return all namespaces that have documents, in the order of their labels."""
        store = await self._choice.open_to_read(call, None)
        return sorted(map(parse_path, await store.list_scopes(DOCUMENT)))

    async def expire(self, call: ToolCall) -> int:
        """Erase documents whose lifetime is over. Undo does not restore them. Return their number."""
        store = await self._choice.open_to_read(call, None)
        where = RecordFilter(kinds=(DOCUMENT,), types=(EXPIRING,))

        async def attempt() -> int:
            now = self._clock()
            expired = [record async for record in self._scan(store, where, expired=True)][:MAX_EXPIRED]
            if expired:
                steps = tuple(Delete(record.ref) for record in expired)
                await commit(store, Batch(steps, now, EXPIRE_TOOL, call.session.client, derived=True))
            return len(expired)

        return await retry(attempt)

    async def _mask_secrets_in(self, values: dict[str, Any], write: DocumentWrite) -> dict[str, Any]:
        """Mask the searchable text, and the value if the write asks for it."""
        text: str = values["text"]
        masker = Masker(enabled=self._mask_secrets)
        masked = {**values, "text": await mask_apart(len(text), lambda: masker.mask(text))}
        if not write.masked:
            return masked
        facets = await mask_apart(len(str(values["facets"])), lambda: masker.mask_json(values["facets"]))
        return {**masked, "facets": facets}

    async def _rank(
        self, store: RecordStore, where: RecordFilter, query: str | None
    ) -> AsyncIterator[tuple[Record, float | None]]:
        cursor: str | None = None
        while True:
            page = await search(
                [SearchPlace(store, where)],
                query or "",
                DOCUMENT_PROFILE,
                limit=PAGE_RECORDS,
                cursor=cursor,
                embedder=self._indexer.embedder,
                now=self._clock(),
                time_limit=self._time_limit,
            )
            scores = {hit.record.id: hit.score for hit in page.hits}
            # A document without text is hidden from queries, also if its key matches.
            for record in await self._drop_expired(store, [hit.record for hit in page.hits if hit.record.text]):
                yield record, scores[record.id]
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _list(self, store: RecordStore, where: RecordFilter) -> AsyncIterator[tuple[Record, float | None]]:
        async for record in self._scan(store, where):
            yield record, None

    async def _scan(self, store: RecordStore, where: RecordFilter, *, expired: bool = False) -> AsyncIterator[Record]:
        """Yield documents, newest first: those that are live or, on request, those that are expired."""
        async for page in store.scan_pages(where, PAGE_RECORDS, order="newest"):
            live = {record.id for record in await self._drop_expired(store, page)}
            for record in page:
                if (record.id in live) is not expired:
                    yield record

    async def _drop_expired(self, store: RecordStore, records: Sequence[Record]) -> list[Record]:
        limited = [record.id for record in records if record.type == EXPIRING]
        accesses: Mapping[str, AccessCount] = await store.get_accesses(limited) if limited else {}
        now = self._clock()
        return [
            record
            for record in records
            if not is_expired(record, accesses[record.id].last_at if record.id in accesses else 0, now)
        ]

    async def _note_accesses(self, store: RecordStore, ids: Sequence[str]) -> None:
        if not ids:
            return
        try:
            await store.note_accesses(dict.fromkeys(ids, 1), self._clock())
        except EverkeptError as error:
            log.info("accesses of documents not stored: %s", error)  # the read itself must succeed


def _is_expiring(values: Mapping[str, Any] | None) -> bool:
    return values is not None and values["type"] == EXPIRING


def _build_steps(document_id: str, values: dict[str, Any] | None, there: Record | None, at: int) -> list[Step]:
    is_live = there is not None and there.deleted_at is None
    if values is None:
        return [Delete(there.ref)] if there is not None and is_live else []
    if there is None:
        return [Insert(Record(id=document_id, kind=DOCUMENT, created_at=at, updated_at=at, **values))]
    if is_live:
        return [Update(there.id, keep_created(values, there), there.version)]
    return [Restore(there.ref), Update(there.id, mark_restored(values, at), there.version)]


_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
MAX_DEPTH = 50  # of parts in one another
OPERATORS = ("$eq", "$ne", *_ORDERS)


def is_match(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether each named part equals the wanted one or meets its condition. A missing part equals None."""
    return all(_is_part_match(value.get(name), part) for name, part in wanted.items())


def check_filter(wanted: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an operator that does not exist, a name that is not a text, or too many levels."""
    waiting: list[tuple[Any, int]] = [(wanted, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _build_error(f"`filter` has more than {MAX_DEPTH} levels.", f"Use at most {MAX_DEPTH} levels.")
        if isinstance(part, Mapping):
            named = cast(Mapping[Any, Any], part)
            _check_names([*named], is_condition=depth > 1)
            waiting += [(each, depth + 1) for each in named.values()]
        elif isinstance(part, list | tuple):
            waiting += [(each, depth + 1) for each in cast(Sequence[Any], part)]


def _check_names(names: Sequence[Any], *, is_condition: bool) -> None:
    for name in names:
        if not isinstance(name, str):
            raise _build_error(f"`filter` has the name {name!r}.", "Use texts as names.")
    operators = [name for name in names if name.startswith("$")] if is_condition else []
    if operators and (unknown := [name for name in names if name not in OPERATORS]):
        raise _build_error(f'`filter` has the unknown operator "{unknown[0]}".', f"Use {', '.join(OPERATORS)}.")


def _build_error(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, hint=hint, argument="filter")


def _list_operators(part: Any) -> list[str]:
    if not isinstance(part, Mapping):
        return []
    return [name for name in cast(Mapping[str, Any], part) if name.startswith("$")]


def _is_part_match(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        conditions = cast(Mapping[str, Any], wanted)
        if _list_operators(conditions):
            return all(_is_condition_met(value, name, given) for name, given in conditions.items())
        return isinstance(value, Mapping) and is_match(cast(Mapping[str, Any], value), conditions)
    if isinstance(wanted, list | tuple):
        parts = cast(Sequence[Any], wanted)
        if not isinstance(value, list) or len(cast(list[Any], value)) != len(parts):
            return False
        return all(map(_is_part_match, cast(list[Any], value), parts))
    return bool(value == wanted)


def _is_condition_met(value: Any, name: str, given: Any) -> bool:
    if name == "$eq":
        return bool(value == given)
    if name == "$ne":
        return bool(value != given)
    try:
        return _ORDERS[name](float(value), float(given))
    except (TypeError, ValueError, OverflowError):
        return False  # not numbers
