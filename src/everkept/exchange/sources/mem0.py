"""mem0: its history database, its Qdrant folder, and JSON from its API or from OpenMemory.

Qdrant pickles what it stores. Loading such a file would let it run any code, so this reads only numbers, texts, lists
and mappings. Instances become mappings of their fields; their classes are never looked up.
"""

import io
import pickletools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

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
from everkept.transcripts.source_programs import as_mapping, as_text, as_texts, clean_value, parse_time
from everkept.values import replace

MAX_STEPS = 2_000_000  # of one value; a vector of 4,000 numbers takes as many steps

MAX_NUMBER_BITS = 2_048  # Python does not write far larger numbers as text
MAX_REPEATED = 16 * 1024 * 1024  # characters of texts that are used again

_LITERALS = """
    BININT BININT1 BININT2 LONG1 LONG4 INT LONG BINFLOAT FLOAT
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE
"""
_WITH_ARGUMENT = frozenset(_LITERALS.split())
_BLANKS = frozenset(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "GLOBAL"))  # values that nothing here uses
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_TUPLE": list,
}
_TUPLE_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


def read_pickled_value(raw: bytes) -> Any:
    """Return the value. Raise ValueError if the pickle is broken, or has more than plain values and their instances."""
    reader = _Reader()
    try:
        for step, (code, argument, _) in enumerate(pickletools.genops(io.BytesIO(raw))):
            if step == MAX_STEPS:
                raise ValueError("the pickle is too long")
            reader.take(code.name, argument)
        (value,) = reader.stack
    except (AttributeError, IndexError, TypeError, OverflowError) as error:
        raise ValueError("the pickle is broken") from error
    return value


class _Reader:
    """The stack of the format and its numbered values. Only texts and numbers can be used twice, so no cycle arises."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._repeated = 0

    def take(self, code: str, argument: Any) -> None:
        stack = self.stack
        if code in _WITH_ARGUMENT:
            if isinstance(argument, int) and argument.bit_length() > MAX_NUMBER_BITS:
                raise ValueError("the pickle has a number that is too large")
            stack.append(argument)
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code]())
        elif code in _BLANKS:
            stack.append(None)
        elif code in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            value = stack[-1]
            number = len(self._memo) if argument is None else argument
            self._memo[number] = value if isinstance(value, str | int | float) else None
        elif code in ("BINGET", "LONG_BINGET", "GET"):
            value = self._memo.get(argument)
            self._repeated += len(value) if isinstance(value, str) else 0
            if self._repeated > MAX_REPEATED:
                raise ValueError("the pickle repeats its texts too often")
            stack.append(value)
        elif code == "MARK":
            stack.append(_MARK)
        elif code not in ("PROTO", "FRAME", "STOP"):
            self._combine(code)

    def _combine(self, code: str) -> None:
        stack = self.stack
        if code in _TUPLE_SIZES:
            size = _TUPLE_SIZES[code]
            stack[-size:] = [stack[-size:]]
        elif code in ("TUPLE", "FROZENSET", "LIST"):
            stack.append(self._pop_marked())
        elif code == "DICT":
            stack.append(_pair(self._pop_marked()))
        elif code in ("APPEND", "APPENDS", "ADDITEMS"):
            added = [stack.pop()] if code == "APPEND" else self._pop_marked()
            cast(list[Any], stack[-1]).extend(added)
        elif code in ("SETITEM", "SETITEMS"):
            pairs = [stack.pop(-2), stack.pop()] if code == "SETITEM" else self._pop_marked()
            cast(dict[Any, Any], stack[-1]).update(_pair(pairs))
        elif code in ("STACK_GLOBAL", "NEWOBJ", "REDUCE"):
            stack.pop()
            stack[-1] = {} if code == "NEWOBJ" else None  # what a call would return is unknown
        elif code == "BUILD":
            state = stack.pop()
            if isinstance(state, dict):
                fields = cast(dict[str, Any], state)
                if not stack[-1]:
                    stack[-1] = {}
                cast(dict[str, Any], stack[-1]).update(fields.get("__dict__") or fields)
        else:
            raise ValueError(f"{code} is not part of a plain value")

    def _pop_marked(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("the pickle is broken")
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found


def _pair(values: list[Any]) -> dict[str, Any]:
    """Return keys and values as a mapping of texts: numbers can be chosen so that finding each takes all others."""
    return {str(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


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
