"""mem0: its history database, its Qdrant folder, and JSON from its API or from OpenMemory."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from everkept.exchange.export_archives import list_export_files
from everkept.exchange.foreign import (
    ForeignItem,
    ForeignMemory,
    ForeignSource,
    Machine,
    Row,
    Skipped,
    build_wrong_place_error,
    is_sqlite_file,
    open_foreign_database,
)
from everkept.exchange.pickled_values import read_pickled_value
from everkept.transcripts.source_programs import as_mapping, as_text, as_texts, clean_value, parse_time
from everkept.values import replace

HISTORY = "history.db"
QDRANT_FOLDERS = ("", "qdrant")  # in the folder of mem0, if it is configured so
QDRANT_FILE = "storage.sqlite"
DEFAULT_QDRANT = "/tmp/qdrant"  # on all systems
ENTITIES_SUFFIX = "_entities"
EXPECTED = "data of mem0"
HINT = f"Pass its folder, its {HISTORY}, its Qdrant folder, or JSON with its memories."
# Columns that mem0 writes. The user named all others.
_OWN_COLUMNS = """
    id data memory content hash created_at updated_at user_id agent_id run_id app_id session_id actor_id role
    attributed_to expiration_date text_lemmatized metadata categories category_ids structured_attributes state
    score archived_at deleted_at
"""
_OWN = frozenset(_OWN_COLUMNS.split())

_Entities = Mapping[str, list[tuple[str, str]]]  # types and names, by the id of a memory


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield the memories of a folder with databases, of one database, or of JSON."""
    collections, histories = _find_databases(place)
    if collections or histories:
        return _read_databases(collections, histories, skipped)
    if place.is_dir() or not place.is_file():
        raise build_wrong_place_error(place, EXPECTED, HINT)
    return _read_json(place, skipped)


def _find_databases(place: Path) -> tuple[list[Path], list[Path]]:
    """Return the databases of Qdrant's collections, and those of mem0's history."""
    if place.is_dir():
        folders = [place / each / "collection" for each in QDRANT_FOLDERS]
        collections = sorted(path for folder in folders for path in folder.glob(f"*/{QDRANT_FILE}"))
        return collections, [path for path in [place / HISTORY] if path.is_file()]
    if not place.is_file() or not is_sqlite_file(place):
        return [], []
    return ([place], []) if place.name == QDRANT_FILE else ([], [place])


def _read_databases(collections: list[Path], histories: list[Path], skipped: Skipped) -> Iterator[ForeignItem]:
    seen: set[str] = set()
    entities: dict[str, list[tuple[str, str]]] = {}
    for path in collections:
        if path.parent.name.endswith(ENTITIES_SUFFIX):
            for _, row in _read_points(path, skipped):
                for memory in as_texts(row.get("linked_memory_ids")):
                    named = as_text(row.get("entity_type")) or "unknown", as_text(row.get("data"))
                    entities.setdefault(memory, []).append(named)
    for path in collections:
        if not path.parent.name.endswith(ENTITIES_SUFFIX):
            for memory, row in _read_points(path, skipped):
                seen.add(memory)
                yield from _build_memory({**row, "id": memory}, skipped, entities)
    for path in histories:
        for row in _read_history(path):
            if row["id"] not in seen:
                for memory in _build_memory(row, skipped, entities):
                    yield replace(memory, has_only_text=True)


def _read_points(path: Path, skipped: Skipped) -> Iterator[tuple[str, Row]]:
    with open_foreign_database(path, "points", EXPECTED, HINT) as database:
        for row in database.read("points"):
            point: Row = {}
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                point = as_mapping(clean_value(read_pickled_value(row["point"])))
            if payload := as_mapping(point.get("payload")):
                yield str(point.get("id")), payload
            else:
                skipped["unreadable"] += 1


def _read_history(path: Path) -> Iterator[Row]:
    """Yield each memory as its newest event left it."""
    newest: dict[str, dict[str, Any]] = {}
    with open_foreign_database(path, "history", EXPECTED, HINT) as database:
        for row in database.read("history"):
            if "memory_id" not in row:
                raise build_wrong_place_error(path, EXPECTED, HINT)
            known = newest.setdefault(as_text(row["memory_id"]), {"created_at": row.get("created_at")})
            is_deleted = row.get("event") == "DELETE" or bool(row.get("is_deleted"))
            known |= {
                "id": as_text(row["memory_id"]),
                "data": row.get("new_memory"),
                "updated_at": row.get("updated_at"),
                "actor_id": row.get("actor_id"),
                "role": row.get("role"),
                "state": "deleted" if is_deleted else None,
            }
    yield from newest.values()


def _read_json(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield the memories of a list, of `results`, or of OpenMemory's `memories`."""
    found = False
    for file in list_export_files(place):
        categories: dict[str, str] = {}
        for key, value in file.read_items():
            row = as_mapping(value)
            if key == "categories":
                categories[as_text(row.get("id"))] = as_text(row.get("name"))
            elif key in (None, "results", "memories") and "id" in row and ("memory" in row or "state" in row):
                found = True
                named = [categories[each] for each in as_texts(row.get("category_ids")) if each in categories]
                yield from _build_memory({"categories": named, **row}, skipped, {})
    if not found:
        raise build_wrong_place_error(place, EXPECTED, HINT)


def _build_memory(row: Row, skipped: Skipped, entities: _Entities) -> Iterator[ForeignMemory]:
    """Yield the memory, unless it is deleted or expired there."""
    expires = parse_time(row.get("expiration_date"))
    if row.get("state") in ("deleted", "archived"):
        skipped[f"{row['state']} there"] += 1
    elif expires is not None and expires < datetime.now(UTC).timestamp() * 1_000_000:
        skipped["expired there"] += 1
    else:
        metadata = {**as_mapping(row.get("metadata")), **{n: v for n, v in row.items() if n not in _OWN}}
        app, run = as_text(row.get("app_id")), as_text(row.get("run_id")) or as_text(row.get("session_id"))
        author = as_text(row.get("agent_id")) or as_text(row.get("actor_id"))
        user = as_text(row.get("user_id"))
        yield ForeignMemory(
            str(row["id"]),
            next(filter(None, (as_text(row.get(name)) for name in ("data", "memory", "content"))), ""),
            scope="project" if app else "user",
            project=app or None,
            session=run or None,
            author=author or None,
            tags=(*as_texts(row.get("categories")), *as_texts(metadata.get("category"))),
            created_at=parse_time(row.get("created_at")),
            updated_at=parse_time(row.get("updated_at")),
            metadata={**metadata, **({"user_id": user} if user else {})},
            related=entities.get(str(row["id"]), ()),
        )


def find(machine: Machine) -> list[Path]:
    folder = machine.get_folder("MEM0_DIR", machine.home / ".mem0")
    return [Path(DEFAULT_QDRANT), folder / HISTORY]


MEM0 = ForeignSource(
    "mem0",
    "mem0",
    "PATH is its folder, its history.db, its Qdrant folder, or JSON from its API. An app's memories go to its project.",
    read,
    find,
)
