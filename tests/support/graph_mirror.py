"""A bank with a graph and its mirror: edits as tools make them, others at work, and crashes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from assistant import Time
from everkept.core.commits import plan_undo
from everkept.core.files import FileInfo, FileStore, FileWork, FolderSurvey
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Ref, Step, Update
from everkept.core.sessions import Session
from everkept.core.text import compute_digest, compute_name_key
from everkept.core.times import Clock, format_iso
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank, BankRecords, Banks, StoreRegistry
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.graph.model import (
    compute_entity_id,
    compute_observation_id,
    compute_relation_id,
    get_attrs,
    get_public_id,
)
from everkept.families.bank.model import BankOptions
from everkept.files.resolver import FileStoreResolver
from everkept.graph.entities import ENTITY, OBSERVATION, ensure_entities
from memory_bank import Banking, bank_in

LOG = "graph/graph.jsonl"
MARKER = {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"}

Named = tuple[str, str]
# Entities with their attributes; observations with their entity; relations between entities.
Told = tuple[dict[Named, Any], set[tuple[Named, str]], set[tuple[Named, str, Named]]]


class Crash(BaseException):
    """The process ends here; nothing may catch it."""


Done = tuple[str, int]  # a call, with how many bytes
Calls = list[Done]
T = TypeVar("T")


class CrashingFiles:
    """A folder whose use ends the process at a chosen step; an append may stop half-way."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self.crash_at: int | None = None
        self.done: Calls = []

    @property
    def address(self) -> str:
        return self._files.address

    @property
    def is_remote(self) -> bool:
        return self._files.is_remote

    async def read(self, path: str, *, start: int = 0) -> bytes:
        self._step("read")
        data = await self._files.read(path, start=start)
        self.done[-1] = ("read", len(data))
        return data

    async def write(self, path: str, data: bytes) -> None:
        self._step("write", len(data))
        await self._files.write(path, data)
        self._step("wrote")

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        if self.crash_at is not None and self.crash_at == len(self.done) + 1:
            await self._files.append(path, data[: len(data) // 2])
        self._step("append", len(data))
        await self._files.append(path, data)
        self._step("appended")

    async def read_info(self, path: str = "") -> FileInfo | None:
        self._step("info")
        return await self._files.read_info(path)

    async def list(self, folder: str = "") -> list[FileInfo]:
        return await self._files.list(folder)

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        return await self._files.survey(folder, with_newest=with_newest)

    async def remove(self, path: str) -> None:
        self._step("remove")
        await self._files.remove(path)

    async def rename(self, path: str, to: str) -> None:
        self._step("rename")
        await self._files.rename(path, to)

    async def make_folder(self, path: str = "") -> None:
        await self._files.make_folder(path)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._files.lock(name)

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        return await self._files.run_all(works)

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        return await self._files.run_locked(name, work, undo)

    def calls(self, *names: str) -> Calls:
        return [call for call in self.done if call[0] in names]

    def _step(self, name: str, size: int = 0) -> None:
        self.done.append((name, size))
        if self.crash_at is not None and len(self.done) >= self.crash_at:
            raise Crash(name)


class FolderInMemory:
    """A folder that is there for a moment: quick enough for thousands of short lives."""

    is_remote = False

    def __init__(self, address: str, clock: Clock) -> None:
        self.address = address
        self.contents: dict[str, tuple[bytes, int]] = {}
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}

    async def read(self, path: str, *, start: int = 0) -> bytes:
        if path not in self.contents:
            raise NotFound("file", path)
        return self.contents[path][0][start:]

    async def write(self, path: str, data: bytes) -> None:
        self.contents[path] = (data, self._clock())

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        before, _ = self.contents.get(path, (b"", 0))
        self.contents[path] = (before + data, self._clock())

    async def read_info(self, path: str = "") -> FileInfo | None:
        if path not in self.contents:
            return None
        data, at = self.contents[path]
        return FileInfo(path, len(data), at)

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        below = [info.name for info in await self.list(folder)]
        return FolderSurvey(below, [], {}, [])

    async def list(self, folder: str = "") -> list[FileInfo]:
        below = sorted(path for path in self.contents if path.startswith(f"{folder}/"))
        return [info for path in below if (info := await self.read_info(path)) is not None]

    async def remove(self, path: str) -> None:
        self.contents.pop(path, None)

    async def rename(self, path: str, to: str) -> None:
        self.contents[to] = self.contents.pop(path)

    async def make_folder(self, path: str = "") -> None:
        """Folders are there as soon as something is in them."""

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(name, asyncio.Lock())

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        return [await work() for work in works]

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        async with self.lock(name):
            return await work()


@dataclass
class Mirroring:
    """One machine: a project's records, and the mirror that keeps a bank's log beside them."""

    banking: Banking
    files: CrashingFiles
    bank: Bank
    mirror: GraphMirror
    clock: Clock

    @property
    def path(self) -> Path:
        return self.banking.folder / LOG

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    async def store(self) -> RecordStore:
        return await self.banking.records.open_to_write(self.bank)

    async def follow(self) -> list[str]:
        return [warning.code for warning in await self.mirror.append_changes(self.bank)]

    async def meet(self) -> list[str]:
        return [warning.code for warning in await self.mirror.merge_log(self.bank)]

    def restart(self, **options: Any) -> None:
        """As after a crash: only what is stored is known."""
        self.files.crash_at = None
        self.mirror = make_mirror(self.banking, **options)

    async def commit(self, *steps: Step) -> None:
        await (await self.store()).commit(Batch(steps, self.clock(), "test"))

    async def upsert(self, name: str, kind: str = "thing", **attrs: Any) -> str:
        store = await self.store()
        steps, [made] = await ensure_entities(store, [(name, kind)], self.clock())
        if steps:
            await self.commit(*steps)
        record_id = made.id
        [record] = await store.get([record_id])
        if get_attrs(record) != attrs:
            facets = {**record.facets, "attrs": attrs}
            await self.commit(Update(record_id, {"facets": facets}, record.version))
        return record_id

    async def observe(self, name: str, text: str, kind: str = "thing", **more: Any) -> None:
        at = self.clock()
        entity = await self.upsert_same(name, kind)
        fields = {"id": str(uuid4()), "kind": OBSERVATION, "text": text, "name_key": compute_digest(text)}
        fields |= {"parent": entity.id, "created_at": at, "updated_at": at} | more
        await self.commit(Insert(Record(**fields)))

    async def upsert_same(self, name: str, kind: str = "thing") -> Record:
        found = await self.entity(name, kind)
        if found is None:
            [found] = await (await self.store()).get([await self.upsert(name, kind)])
        return found

    async def relate(self, source: str, verb: str, target: str) -> None:
        ends = [await self.upsert_same(name) for name in (source, target)]
        await self.commit(Insert(RecordLink(str(uuid4()), ends[0].id, verb, ends[1].id, self.clock())))

    async def amend(self, record_id: str, **values: Any) -> None:
        [record] = await (await self.store()).get([record_id])
        await self.commit(Update(record_id, values, record.version))

    async def rename(self, name: str, to: str, kind: str = "thing") -> None:
        record = await self.entity(name, kind)
        assert record is not None
        values = {"name": to, "name_key": compute_name_key(to)}
        await self.commit(Update(record.id, values, record.version))

    async def delete(self, name: str, kind: str = "thing") -> None:
        record = await self.entity(name, kind)
        assert record is not None
        await self.commit(Delete(record.ref))

    async def forget(self, text: str) -> None:
        found = [o for o in await self.observations() if o.text == text]
        await self.commit(*(Delete(record.ref) for record in found))

    async def unrelate(self, verb: str) -> None:
        links = await (await self.store()).scan_links(deleted=False)
        [link] = [link for link in links if link.verb == verb]
        await self.commit(Delete(link.ref))

    async def undo(self) -> None:
        store = await self.store()
        [change] = await store.read_changes(limit=1, newest_first=True)
        steps = await plan_undo(store, change)
        await store.commit(Batch(steps, self.clock(), "undo", undoes=change.seq))

    async def purge(self, *texts: str) -> None:
        refs = [Ref("record", o.id) for o in await self.observations() if o.text in texts]
        await (await self.store()).purge(refs)

    async def entity(self, name: str, kind: str = "thing") -> Record | None:
        where = RecordFilter(kinds=(ENTITY,), name_keys=(compute_name_key(name),))
        found = await (await self.store()).scan(where)
        return next((e for e in found if compute_name_key(e.type or "") == compute_name_key(kind)), None)

    async def observations(self) -> list[Record]:
        return await (await self.store()).scan(RecordFilter(kinds=(OBSERVATION,)))

    async def texts(self) -> set[str]:
        return {record.text for record in await self.observations()}

    async def stored(self) -> Told:
        """The graph of the records, as the log should tell it."""
        store = await self.store()
        entities = {r.id: r for r in await store.scan(RecordFilter(kinds=(ENTITY,)))}
        names = {key: (e.name or "", e.type or "") for key, e in entities.items()}
        return (
            {names[key]: get_attrs(entity) for key, entity in entities.items()},
            {(names[o.parent or ""], o.text) for o in await self.observations()},
            {
                (names[link.source], link.verb, names[link.target])
                for link in await store.scan_links(deleted=False)
                if link.source in names and link.target in names
            },
        )

    async def log(self) -> bytes | None:
        return await self.files.read(LOG) if await self.files.read_info(LOG) else None

    def told(self) -> Told:
        return replay(self.path.read_bytes())

    def append(self, *events: Mapping[str, Any]) -> None:
        """As a program does that knows nothing of our lock."""
        self.path.parent.mkdir(exist_ok=True)
        new = not self.path.exists()
        with self.path.open("ab") as file:
            file.write((as_lines(MARKER) if new else b"") + as_lines(*events))


def make_mirror(
    banking: Banking, *, records: BankRecords | None = None, mask: bool = True, read_only: bool = False
) -> GraphMirror:
    records = records or banking.records
    return GraphMirror(records, banking.library, banking.clock, mask=mask, read_only=read_only)


@asynccontextmanager
async def mirrored(home: Path, library: Library | None = None) -> AsyncGenerator[Mirroring, None]:
    async with bank_in(home, library=library) as banking:
        files = CrashingFiles(banking.bank.files)
        bank = Bank(files, banking.bank.home)
        yield Mirroring(banking, files, bank, make_mirror(banking), banking.clock)


def mirrored_in_memory() -> Mirroring:
    library, clock = MemoryLibrary(), Time()
    stores = {address: FolderInMemory(address, clock) for address in ("/home/bank", "/home")}
    files = CrashingFiles(stores["/home/bank"])
    bank = Bank(files, stores["/home"])
    banks = Banks(FileStoreResolver(), StoreRegistry(library), BankOptions(place=None))
    banking = Banking(Path(), Path(), FileStoreResolver(), library, banks, bank, Session(), clock)
    return Mirroring(banking, files, bank, make_mirror(banking), clock)


def as_lines(*events: Mapping[str, Any]) -> bytes:
    return b"".join((json.dumps(event) + "\n").encode() for event in events)


def upserted(name: str, at: int, kind: str = "thing", **attrs: Any) -> dict[str, Any]:
    entity = {"id": compute_entity_id(name, kind), "name": name, "entityType": kind}
    entity |= {"attrs": attrs} if attrs else {}
    entity |= {"createdAt": format_iso(at), "updatedAt": format_iso(at)}
    return {"type": "entity_upsert", "entity": entity, "ts": format_iso(at)}


def observed(name: str, text: str, at: int, kind: str = "thing") -> dict[str, Any]:
    owner = compute_entity_id(name, kind)
    observation = {"id": compute_observation_id(owner, text, format_iso(at)), "entityId": owner, "text": text}
    observation |= {"source": {"kind": "agent"}, "timestamp": format_iso(at)}
    return {"type": "observation_add", "observation": observation, "ts": format_iso(at)}


def related(source: str, verb: str, target: str, at: int) -> dict[str, Any]:
    ends = compute_entity_id(source, "thing"), compute_entity_id(target, "thing")
    relation = {"id": compute_relation_id(ends[0], verb, ends[1]), "fromId": ends[0], "toId": ends[1]}
    relation |= {"relationType": verb, "createdAt": format_iso(at)}
    return {"type": "relation_add", "relation": relation, "ts": format_iso(at)}


def entity_deleted(name: str, at: int, kind: str = "thing") -> dict[str, Any]:
    return {"type": "entity_delete", "entityId": compute_entity_id(name, kind), "ts": format_iso(at)}


def observation_deleted(record: Record, owner: Record, at: int) -> dict[str, Any]:
    key = compute_observation_id(get_public_id(owner), record.text, format_iso(record.effective_at))
    ids = {"entityId": get_public_id(owner), "observationId": key}
    return {"type": "observation_delete", **ids, "ts": format_iso(at)}


def relation_removed(source: str, verb: str, target: str, at: int) -> dict[str, Any]:
    ends = {"fromId": compute_entity_id(source, "thing"), "toId": compute_entity_id(target, "thing")}
    return {"type": "relation_remove", **ends, "relationType": verb, "ts": format_iso(at)}


def replay(data: bytes) -> Told:
    """What the public server would make of a log: event by event, in their order."""
    first, *rest = [line for line in data.split(b"\n") if line.strip()]
    assert json.loads(first) == MARKER
    entities: dict[str, dict[str, Any]] = {}
    observations: dict[str, dict[str, Any]] = {}
    relations: dict[str, dict[str, Any]] = {}
    for line in rest:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "entity_upsert":
            entities[event["entity"]["id"]] = event["entity"]
        elif kind == "observation_add":
            assert event["observation"]["entityId"] in entities
            observations[event["observation"]["id"]] = event["observation"]
        elif kind == "relation_add":
            assert {event["relation"]["fromId"], event["relation"]["toId"]} <= entities.keys()
            relations[event["relation"]["id"]] = event["relation"]
        elif kind == "entity_delete":
            gone = event["entityId"]
            entities.pop(gone, None)
            observations = {k: o for k, o in observations.items() if o["entityId"] != gone}
            relations = {k: r for k, r in relations.items() if gone not in (r["fromId"], r["toId"])}
        elif kind == "observation_delete":
            observations.pop(event["observationId"], None)
        elif kind == "relation_remove":
            wanted = event["fromId"], event["toId"], event["relationType"].lower()
            relations = {
                k: r for k, r in relations.items() if (r["fromId"], r["toId"], r["relationType"].lower()) != wanted
            }
    names = {key: (e["name"], e["entityType"]) for key, e in entities.items()}
    return (
        {names[key]: entity.get("attrs", {}) for key, entity in entities.items()},
        {(names[o["entityId"]], o["text"]) for o in observations.values()},
        {(names[r["fromId"]], r["relationType"], names[r["toId"]]) for r in relations.values()},
    )


class CountingStore:
    """Counts the questions to a store, and the rows of the answers."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def counted(*arguments: Any, **more: Any) -> Any:
            self.asked[name] += 1
            answer = await method(*arguments, **more)
            self.rows += len(answer) if isinstance(answer, list) else 0
            return answer

        return counted


@dataclass
class CountedRecords:
    """The records of a bank, reached through a store that counts."""

    project: str | None
    store: Any

    async def find_project_id(self, bank: Bank) -> str | None:
        return self.project

    async def open_to_read(self, bank: Bank) -> RecordStore:
        return self.store

    async def open_to_write(self, bank: Bank) -> RecordStore:
        return self.store
