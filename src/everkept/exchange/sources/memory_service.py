"""mcp-memory-service: its SQLite database, and the JSON file that it exports."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from everkept.core.disk import open_regular
from everkept.exchange.foreign import (
    ForeignDatabase,
    ForeignItem,
    ForeignLink,
    ForeignMemory,
    ForeignSource,
    Machine,
    Row,
    Skipped,
    build_wrong_place_error,
    choose_type,
    is_sqlite_file,
    open_foreign_database,
)
from everkept.exchange.json_files import expect_json, read_json_items
from everkept.families.memories.model import DERIVED_FROM
from everkept.graph.entities import UNKNOWN_TYPE
from everkept.transcripts.source_programs import as_list, as_mapping, as_text, decode_object, parse_time, parse_value
from everkept.values import replace

DATABASE = "sqlite_vec.db"
EXPECTED = "data of mcp-memory-service"
HINT = f"Pass its folder, its {DATABASE}, or a JSON export."
NO_TAG = "untagged"
PROJECT_TAG, HOST_TAG, USER_TAG = "proj:", "source:", "user:"
PREFERENCE = "preference_signal"
HAS_ENTITY = "has_entity"  # relationship of a memory to the name of an entity
SYMMETRIC = ("related", "contradicts")  # stored twice, once in each direction
# Facts about use and ranking there, which mean nothing here.
_BOOKKEEPING = ("access_count", "access_queries", "last_accessed_at", "original_hash", "quality_score", "superseded_by")


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield the memories of a database or an export, and the links between them."""
    path = place / DATABASE if place.is_dir() else place
    if not path.is_file():
        raise build_wrong_place_error(place, EXPECTED, HINT)
    return _read_database(path, skipped) if is_sqlite_file(path) else _read_export(path)


def _read_database(path: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    with open_foreign_database(path, "memories", EXPECTED, HINT) as database:
        entities = _read_entities(database)
        for row in database.read("memories"):
            if "content_hash" not in row:
                raise build_wrong_place_error(path, EXPECTED, HINT)
            if row.get("deleted_at") is not None:
                skipped["deleted there"] += 1
            else:
                memory = _build_memory(row, as_text(row.get("tags")).split(","), decode_object(row.get("metadata")))
                yield replace(memory, related=entities.get(memory.id, ()))
        yield from _read_links(database)
        yield from _read_beliefs(database, skipped)


def _read_entities(database: ForeignDatabase) -> Mapping[str, list[tuple[str, str]]]:
    """Return the types and names of entities, by the id of a memory. The program looks for them if it is told to."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in database.read("memory_graph"):
        if row.get("relationship_type") == HAS_ENTITY:
            kind = as_text(decode_object(row.get("metadata")).get("entity_type")) or UNKNOWN_TYPE
            found.setdefault(as_text(row.get("source_hash")), []).append((kind, as_text(row.get("target_hash"))))
    return found


def _read_links(database: ForeignDatabase) -> Iterator[ForeignItem]:
    seen: set[Sequence[str]] = set()
    for row in database.read("memory_graph"):
        if row.get("relationship_type") == HAS_ENTITY:
            continue
        source, target = as_text(row.get("source_hash")), as_text(row.get("target_hash"))
        named = parse_value(as_text(row.get("connection_types")) or "[]")
        verb = as_text(row.get("relationship_type")) or next(map(str, as_list(named)), "related")
        ends = sorted((source, target)) if verb in SYMMETRIC else [source, target]
        if (key := (verb, *ends)) not in seen:
            seen.add(key)
            yield ForeignLink(ends[0], verb, ends[1], parse_time(row.get("created_at")))


def _read_beliefs(database: ForeignDatabase, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield what the program concluded from memories, if it still holds."""
    for row in database.read("beliefs"):
        if row.get("status") not in ("active", "disputed"):
            skipped[f"{row.get('status')} belief"] += 1
            continue
        belief = f"belief {row.get('belief_hash')}"
        created = parse_time(row.get("created_at"))
        yield ForeignMemory(
            belief,
            as_text(row.get("content")),
            kind="belief",
            importance=_read_share(row.get("confidence")),
            tags=("belief", *(["disputed"] if row["status"] == "disputed" else [])),
            created_at=created,
            updated_at=parse_time(row.get("updated_at")),
        )
        for origin in as_list(parse_value(as_text(row.get("derived_from")) or "[]")):
            yield ForeignLink(belief, DERIVED_FROM, str(origin), created)


def _read_export(path: Path) -> Iterator[ForeignItem]:
    found = False
    with expect_json(path, EXPECTED, HINT), open_regular(path) as file:
        for key, value in read_json_items(file):
            row = as_mapping(value)
            found = found or key == "export_metadata"
            if key == "memories" and "content_hash" in row:
                found = True
                yield _build_memory(row, as_list(row.get("tags")), as_mapping(row.get("metadata")))
    if not found:
        raise build_wrong_place_error(path, EXPECTED, HINT)


def _build_memory(row: Row, tags: Sequence[Any], metadata: Mapping[str, Any]) -> ForeignMemory:
    kind = as_text(row.get("memory_type"))
    named = [str(tag).strip() for tag in tags]
    projects = [tag.removeprefix(PROJECT_TAG) for tag in named if tag.startswith(PROJECT_TAG)]
    is_personal = kind == PREFERENCE or any(tag.startswith(USER_TAG) for tag in named)
    kept = [tag for tag in named if tag != NO_TAG and not tag.startswith(HOST_TAG)]
    return ForeignMemory(
        as_text(row["content_hash"]),
        as_text(row.get("content")),
        kind=kind,
        type=choose_type(kind),
        scope="user" if is_personal else "project",
        project=next((name for name in (*projects, as_text(metadata.get("project"))) if name.strip()), None),
        session=as_text(metadata.get("conversation_id")) or None,
        author=as_text(metadata.get("agent_id")) or None,
        importance=_read_share(metadata.get("quality_score")),
        tags=(*kept, kind),
        created_at=parse_time(row.get("created_at")),
        updated_at=parse_time(row.get("updated_at")),
        metadata={name: value for name, value in metadata.items() if name not in _BOOKKEEPING},
        supersedes=as_text(row.get("parent_id")) or None,
        # An export has it in the metadata only.
        superseded_by=as_text(row.get("superseded_by")) or as_text(metadata.get("superseded_by")) or None,
    )


def _read_share(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(float(value), 0.0), 1.0) if is_number else 0.5


def find(machine: Machine) -> list[Path]:
    named = machine.environment.get("MCP_MEMORY_SQLITE_PATH") or machine.environment.get("MCP_MEMORY_SQLITEVEC_PATH")
    folder = machine.get_folder("MCP_MEMORY_BASE_DIR", machine.get_data_folder("mcp-memory"))
    return [Path(named).expanduser()] if named else [folder / DATABASE]


MEMORY_SERVICE = ForeignSource(
    "mcp-memory-service",
    "mcp-memory-service",
    "PATH is its folder, its database, or a JSON export. Tags such as proj:shop name the project.",
    read,
    find,
)
