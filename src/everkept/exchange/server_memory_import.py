"""Import of the official memory server's file, and the files that it and its clients use. Nothing is stored twice."""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.clients.config_files import ClientEnvironment, ClientProgram, UnexpectedShape, as_object, list_clients
from everkept.clients.jsonc import NotJson
from everkept.clients.own_command import get_command_words
from everkept.clients.survey import read_values
from everkept.clients.toml_text import NotToml
from everkept.core import disk
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Insert, RecordFilter
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import compute_name_key
from everkept.core.times import Clock
from everkept.engines.memory.store import MemoryStore
from everkept.errors import EverkeptError, InvalidInput
from everkept.exchange.foreign_import import ImportedKind
from everkept.exchange.importer import PAUSE_SECONDS, Progress, split_chunks
from everkept.families.graph.graph import Graph
from everkept.families.graph.model import NewEntity, RelationSpec
from everkept.families.graph.server_memory import ParsedItem, UnreadableLine, parse_lines
from everkept.graph.entities import ENTITY, OBSERVATION, ExactNameAndTypeIdentity, find_candidates
from everkept.values import Value, field, replace

MAX_FILE_BYTES = 64 * 1024 * 1024  # of the official server's file, which it reads as a whole too


class ServerMemoryImport(Value, frozen=False):
    """Counts of what an import added. A second run of the same file adds nothing."""

    entities: int = 0
    observations: int = 0
    relations: int = 0
    place: str = ""
    project: str = ""
    folder_project: str | None = None  # of the working folder
    dry_run: bool = False
    kinds: list[ImportedKind] = field(default_factory=list[ImportedKind])
    unreadable: list[UnreadableLine] = field(default_factory=list[UnreadableLine])
    masked: list[str] = field(default_factory=list[str])  # kinds of masked secrets


ServerMemoryFile = list[tuple[int, ParsedItem]]  # each item with the number of its line


async def import_server_memory(
    parsed: ServerMemoryFile, store: RecordStore, clock: Clock, progress: Progress, *, mask: bool = True
) -> ServerMemoryImport:
    """Import what the project does not have. `progress` receives done and total.

    The end of a relation without an entity becomes an entity of type `unknown`.
    """
    outcome = ServerMemoryImport(unreadable=[item for _, item in parsed if isinstance(item, UnreadableLine)])
    entities = [item for _, item in parsed if isinstance(item, NewEntity)]
    outcome.kinds = _count_kinds(parsed)
    relations = [(line, item) for line, item in parsed if isinstance(item, RelationSpec)]

    async def open_store() -> RecordStore:
        return store

    call = ToolCall(Session(client="command line"), "import server-memory")
    graph = Graph(open_store, call, clock, ExactNameAndTypeIdentity(), mask=mask)
    total, done = len(entities) + len(relations), 0
    ids: dict[str, str] = {}
    for chunk in split_chunks(entities, lambda item: 1 + len(item.observations)):
        await _import_entities(graph, chunk, ids, outcome)
        done += len(chunk)
        progress(done, total)
        await asyncio.sleep(PAUSE_SECONDS)
    for chunk in split_chunks(relations):
        await _import_relations(graph, store, chunk, ids, outcome)
        done += len(chunk)
        progress(done, total)
        await asyncio.sleep(PAUSE_SECONDS)
    outcome.unreadable.sort(key=lambda item: item.line)
    outcome.masked = list(graph.masking.kinds)
    return outcome


def _count_kinds(parsed: ServerMemoryFile) -> list[ImportedKind]:
    types: Counter[str] = Counter()
    observations = relations = 0
    for _, item in parsed:
        if isinstance(item, NewEntity):
            types[item.entity_type] += 1
            observations += len(item.observations)
        relations += isinstance(item, RelationSpec)
    kinds = [ImportedKind(name, "entity", "", count) for name, count in sorted(types.items())]
    told = (("observation", observations), ("relation", relations))
    return [*kinds, *(ImportedKind(name, name, "", count) for name, count in told if count)]


async def copy_graph(store: RecordStore) -> RecordStore:
    """Return a copy in memory of the entities with their relations, so that a dry run can count what it would add."""
    copied = MemoryStore()
    entities = await store.scan(RecordFilter(kinds=(ENTITY,)))
    observations = await store.scan(RecordFilter(kinds=(OBSERVATION,)))
    ids = {record.id for record in entities}
    links = await store.find_links(tuple(ids), direction="out") if ids else ()
    inner = [link for link in links if link.target in ids]
    steps = list(map(Insert, [*entities, *observations, *inner]))
    await copied.commit(Batch(tuple(steps), 0, "import", copied=True))
    return copied


async def _import_entities(
    graph: Graph, wanted: Sequence[NewEntity], ids: dict[str, str], outcome: ServerMemoryImport
) -> None:
    by_key: dict[tuple[str, str], str] = {}
    for made in await graph.create_entities(wanted):
        record = made.record
        by_key[record.name or "", compute_name_key(record.type or "")] = record.id
        outcome.entities += made.is_new
        outcome.observations += len(made.observations)
    for item in wanted:
        kept = graph.masking.mask(item.name), compute_name_key(graph.masking.mask(item.entity_type))
        ids.setdefault(item.name, by_key[kept])


async def _import_relations(
    graph: Graph,
    store: RecordStore,
    wanted: Sequence[tuple[int, RelationSpec]],
    ids: dict[str, str],
    outcome: ServerMemoryImport,
) -> None:
    """Import relations between entities of the file, then of the project. Ambiguous names are reported."""
    strangers = {n for _, item in wanted for n in (item.from_, item.to) if n not in ids}
    known = await find_candidates(store, sorted(strangers))
    ids |= {name: found[0].id for name, found in known.items() if len(found) == 1}
    fitting: list[RelationSpec] = []
    for line, item in wanted:
        unclear = [n for n in (item.from_, item.to) if len(known.get(n, ())) > 1]
        if unclear:
            reason = f'"{unclear[0]}" matches several entities of the project'
            outcome.unreadable.append(UnreadableLine(line, reason))
        else:
            ends = {"from_": ids.get(item.from_, item.from_), "to": ids.get(item.to, item.to)}
            fitting.append(replace(item, **ends))
    known_ids = {*ids.values()}
    new, names_by_id = await graph.create_relations(fitting, make_ends=True)
    outcome.relations += len(new)
    outcome.entities += len(names_by_id.keys() - known_ids)


def read_server_file(path: Path) -> ServerMemoryFile:
    """Read the file of the official server. Raise InvalidInput if it is another file."""
    try:
        with (
            disk.open_regular(path, MAX_FILE_BYTES) as content,
            io.TextIOWrapper(content, encoding="utf-8", errors="replace") as lines,
        ):
            texts = list(lines)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}).",
            hint="Check the path and its permissions.",
            argument="file",
            value=str(path),
        ) from error
    parsed = list(parse_lines(texts))
    if all(isinstance(item, UnreadableLine) for _, item in parsed) and any(map(str.strip, texts)):
        raise InvalidInput(
            f"{path} is not a file of the official memory server: no line is an entity or a relation.",
            hint="Nothing was imported. Each line of such a file is a JSON object of type entity or relation.",
            argument="file",
            value=str(path),
        )
    return parsed


PACKAGE = "server-memory"  # in the words of its command
VARIABLE = "MEMORY_FILE_PATH"
DEFAULT_NAMES = ("memory.jsonl", "memory.json")  # older versions have the second one
_ENVIRONMENTS = ("env", "environment")  # of an entry; OpenCode has the second one
_IN_CACHE = "*/node_modules/@modelcontextprotocol/server-memory/dist"


def find_memory_files(places: ClientEnvironment) -> list[Path]:
    """Return the files that exist, each once."""
    named = [Path(path) for path in _list_named(places)]
    beside = [folder / name for folder in _list_program_folders(places) for name in DEFAULT_NAMES]
    found = {path.resolve(): path for path in [*named, *beside] if path.is_absolute() and path.is_file()}
    return list(found.values())


def _list_named(places: ClientEnvironment) -> Iterator[str]:
    yield places.environment.get(VARIABLE, "")
    for entry in _list_entries(places):
        for name in _ENVIRONMENTS:
            variables = entry.get(name)
            path = cast(Mapping[str, Any], variables).get(VARIABLE) if isinstance(variables, dict) else None
            if isinstance(path, str):
                yield path


def _list_program_folders(places: ClientEnvironment) -> Iterator[Path]:
    """Yield the folders of the program, where it keeps its file by default."""
    for entry in _list_entries(places):
        yield from (Path(word).parent for word in get_command_words(entry) if word.endswith(".js"))
    if places.platform == "win32":
        usual = Path(places.environment.get("LOCALAPPDATA") or places.home / "AppData" / "Local") / "npm-cache"
    else:
        usual = places.home / ".npm"
    yield from sorted(Path(places.environment.get("npm_config_cache") or usual, "_npx").glob(_IN_CACHE))


def _list_entries(places: ClientEnvironment) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of clients that start the program."""
    for client in list_clients(places):
        for file in (client.user_file, client.project_file):
            try:
                values = as_object({} if file is None else read_values(file, client.syntax))
                entries = [each for table in _list_tables(values, client) for each in table.values()]
            except (EverkeptError, NotJson, NotToml, UnexpectedShape):
                continue  # `setup` and `doctor` report it
            yield from (
                cast(Mapping[str, Any], entry)
                for entry in entries
                if isinstance(entry, dict) and any(PACKAGE in word for word in get_command_words(entry))
            )


def _list_tables(values: Mapping[str, Any], client: ClientProgram) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of servers: the client's own, and those that Claude Code keeps for folders."""
    for place in (values, *as_object(values.get("projects", {})).values()):
        if isinstance(place, dict):
            yield as_object(cast(dict[str, Any], place).get(client.servers, {}))
