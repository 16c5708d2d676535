"""Taking in what another memory server keeps, exactly once however often it is run."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from everkept.core.ports import RecordStore
from everkept.core.sessions import Call, Session
from everkept.core.text import normalised
from everkept.core.times import Clock
from everkept.errors import InvalidInput
from everkept.families.graph.graph import Graph
from everkept.families.graph.model import NewEntity, RelationSpec
from everkept.families.graph.server_memory_file import Parsed, Unreadable, parse_lines
from everkept.graph.lookup import ByExactNameAndType, candidates
from everkept.values import Value, field, replace

T = TypeVar("T")
Progress = Callable[[int, int], None]

ROWS_A_COMMIT = 150  # little and often: other windows write in between
PAUSE = 0.004  # seconds between commits, for the same reason


class Imported(Value, frozen=False):
    """What an import added; a second run of the same file adds nothing."""

    entities: int = 0
    observations: int = 0
    relations: int = 0
    unreadable: list[Unreadable] = field(default_factory=list[Unreadable])
    masked: list[str] = field(default_factory=list[str])  # kinds of secrets that were kept out


async def import_server_memory(
    path: Path, store: RecordStore, clock: Clock, progress: Progress, *, mask: bool = True
) -> Imported:
    """Reads the file and adds what the project does not have; `progress` gets done and total.

    A relation's end that no line describes becomes an entity of type `unknown`.
    """
    parsed = await asyncio.to_thread(_read, path)
    outcome = Imported(unreadable=[item for _, item in parsed if isinstance(item, Unreadable)])
    entities = [item for _, item in parsed if isinstance(item, NewEntity)]
    relations = [(line, item) for line, item in parsed if isinstance(item, RelationSpec)]

    async def open_store() -> RecordStore:
        return store

    call = Call(Session(client="command line"), "import server-memory")
    graph = Graph(open_store, call, clock, ByExactNameAndType(), mask=mask)
    total, done = len(entities) + len(relations), 0
    ids: dict[str, str] = {}
    for chunk in _chunks(entities, lambda item: 1 + len(item.observations)):
        await _import_entities(graph, chunk, ids, outcome)
        done += len(chunk)
        progress(done, total)
        await asyncio.sleep(PAUSE)
    for chunk in _chunks(relations, lambda _: 1):
        await _import_relations(graph, store, chunk, ids, outcome)
        done += len(chunk)
        progress(done, total)
        await asyncio.sleep(PAUSE)
    outcome.unreadable.sort(key=lambda item: item.line)
    outcome.masked = list(graph.masking.kinds)
    return outcome


async def _import_entities(
    graph: Graph, wanted: Sequence[NewEntity], ids: dict[str, str], outcome: Imported
) -> None:
    by_key: dict[tuple[str, str], str] = {}
    for made in await graph.create_entities(wanted):
        record = made.record
        by_key[record.name or "", normalised(record.type or "")] = record.id
        outcome.entities += made.is_new
        outcome.observations += len(made.observations)
    for item in wanted:
        kept = graph.masking.text(item.name), normalised(graph.masking.text(item.entity_type))
        ids.setdefault(item.name, by_key[kept])


async def _import_relations(
    graph: Graph,
    store: RecordStore,
    wanted: Sequence[tuple[int, RelationSpec]],
    ids: dict[str, str],
    outcome: Imported,
) -> None:
    """Ends are the entities of the file, then the project's; a name that fits two is reported."""
    strangers = {n for _, item in wanted for n in (item.from_, item.to) if n not in ids}
    known = await candidates(store, sorted(strangers))
    ids |= {name: found[0].id for name, found in known.items() if len(found) == 1}
    fitting: list[RelationSpec] = []
    for line, item in wanted:
        unclear = [n for n in (item.from_, item.to) if len(known.get(n, ())) > 1]
        if unclear:
            reason = f'"{unclear[0]}" fits several entities of the project'
            outcome.unreadable.append(Unreadable(line, reason))
        else:
            ends = {"from_": ids.get(item.from_, item.from_), "to": ids.get(item.to, item.to)}
            fitting.append(replace(item, **ends))
    new, _ = await graph.create_relations(fitting, make_ends=True)
    outcome.relations += len(new)


def _read(path: Path) -> list[tuple[int, Parsed]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return list(parse_lines(lines))
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}).", argument="file", value=str(path)
        ) from error


def _chunks(items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    chunk: list[T] = []
    rows = 0
    for item in items:
        if chunk and rows + size(item) > ROWS_A_COMMIT:
            yield chunk
            chunk, rows = [], 0
        chunk.append(item)
        rows += size(item)
    if chunk:
        yield chunk
