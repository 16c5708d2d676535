"""The interface of a source: what it yields from another program's data, each item with its own id there."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from everkept.core.disk import open_regular
from everkept.core.transcripts import Transcript
from everkept.errors import InvalidInput
from everkept.families.memories.model import DEFAULT_IMPORTANCE, MemoryType, Scope
from everkept.transcripts.sqlite_files import ForeignConnection, build_read_only_uri, open_read_only
from everkept.values import Value, field

NOTHING_IMPORTED = "Nothing was imported."
OWN_ID = "everkept:"  # prefix of ids that are ours, in data that we exported
MAX_TEXT_BYTES = 16 * 1024 * 1024  # of one text in another program's database

# Types of memories by the kinds that other programs have. Other kinds are facts.
_TYPES: dict[str, MemoryType] = {
    **dict.fromkeys(("how-to", "workflow", "pattern", "best_practice", "step", "problem-solution"), "procedural"),
    **dict.fromkeys(("bug", "bugfix", "error", "change", "feature", "refactor", "session", "meeting"), "episodic"),
    **dict.fromkeys(("event", "milestone", "ceremony", "communication", "conversation", "command"), "episodic"),
    **dict.fromkeys(("code_edit", "summary"), "episodic"),
}


def choose_type(kind: str) -> MemoryType:
    """Return the type of a memory by the kind that it has in the other program."""
    return _TYPES.get(kind.strip().lower(), "semantic")


class ForeignMemory(Value):
    """Memory of another program. Times are microseconds; without one, the time of the import counts.

    `project` is the name that the other program has for it. `supersedes` and `superseded_by` are the ids of a memory
    that it replaces and of one that replaces it. With `has_only_text`, the place knows no more than text and times, so
    tags and the like from another place stay.
    """

    id: str
    text: str
    kind: str = ""
    type: MemoryType = "semantic"
    scope: Scope = "project"
    project: str | None = None
    session: str | None = None
    author: str | None = None
    importance: float = DEFAULT_IMPORTANCE
    tags: Sequence[str] = ()
    created_at: int | None = None
    updated_at: int | None = None
    occurred_at: int | None = None
    file: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    supersedes: str | None = None
    superseded_by: str | None = None
    related: Sequence[tuple[str, str]] = ()  # types and names of entities
    has_only_text: bool = False
    is_pinned: bool = False


class ForeignLink(Value):
    """Link between two memories, by their ids in the other program. In our data, the ends can be entities too."""

    source: str
    verb: str
    target: str
    created_at: int | None = None


class ForeignEntity(Value):
    """Entity with its observations. `id` distinguishes entities that have the same name.

    `observation_ids` are ours, for observations that were exported.
    """

    id: str
    name: str
    type: str
    observations: Sequence[str] = ()
    project: str | None = None
    created_at: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scope: Scope = "project"
    observation_ids: Sequence[str | None] = ()
    updated_at: int | None = None


class ForeignRelation(Value):
    """Relation between two entities, by their ids. An id without an entity becomes one of type `unknown`."""

    source: str
    verb: str
    target: str
    project: str | None = None
    created_at: int | None = None
    scope: Scope = "project"


ForeignItem = ForeignMemory | ForeignLink | ForeignEntity | ForeignRelation
Skipped = Counter[str]  # numbers of items that a source does not yield, by reason


class ForeignSource(Value):
    """Program whose data can be imported.

    `read` yields the items of a file or folder, counts what it skips, and raises InvalidInput for another file.
    `find` lists where the program keeps its data on this machine. `list_transcripts` lists files of conversations.
    """

    name: str
    title: str
    help: str
    read: Callable[[Path, Skipped], Iterator[ForeignItem]]
    find: Callable[["Machine"], Sequence[Path]]
    list_transcripts: Callable[[Path], Sequence[Transcript]] | None = None


class Machine(Value):
    """Where programs keep their data: the environment, the home folder and the platform."""

    environment: Mapping[str, str]
    home: Path
    platform: str

    def get_folder(self, variable: str, usual: Path) -> Path:
        """Return the folder that a variable names, or the usual one."""
        named = self.environment.get(variable)
        return Path(named).expanduser() if named else usual

    def get_data_folder(self, name: str) -> Path:
        """Return the folder of a program among the data of applications."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return self.get_folder("LOCALAPPDATA", self.home / "AppData" / "Local") / name
        return self.get_folder("XDG_DATA_HOME", self.home / ".local" / "share") / name


def build_wrong_place_error(place: Path, expected: str, hint: str) -> InvalidInput:
    """Return the error for a missing file, or one of another program."""
    problem = f"is not {expected}" if place.exists() else "does not exist"
    return InvalidInput(f"{place} {problem}.", hint=f"{NOTHING_IMPORTED} {hint}", argument="PATH", value=str(place))


def is_sqlite_file(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(6) == b"SQLite"


Row = Mapping[str, Any]


class ForeignDatabase:
    """SQLite file of another program, opened without writing: no file beside it is created."""

    def __init__(self, connection: ForeignConnection) -> None:
        self._connection = connection

    def has_table(self, name: str) -> bool:
        # A view or virtual table can have endless rows.
        asked = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? AND sql LIKE 'CREATE TABLE%'"
        return any(True for _ in self._connection.execute(asked, (name,)))

    def count(self, table: str) -> int:
        return next((count for (count,) in self._connection.execute(f'SELECT count(*) FROM "{table}"')), 0)

    def read(self, table: str, order: str = "rowid") -> Iterator[Row]:
        """Yield the rows by the names of their columns. Return none if the table does not exist."""
        if not self.has_table(table):
            return
        # Without computed columns, which can make any row huge.
        told = list(self._connection.execute(f'PRAGMA table_xinfo("{table}")'))
        columns = [name for (_, name, *_, hidden) in told if not hidden]
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        for row in self._connection.execute(f'SELECT {listed} FROM "{table}" ORDER BY {order}'):
            yield dict(zip(columns, row, strict=False))


@contextmanager
def open_foreign_database(path: Path, table: str, expected: str, hint: str) -> Generator[ForeignDatabase, None, None]:
    """Open the database of another program, which has this table. Raise InvalidInput for another file."""
    refuse = partial(build_wrong_place_error, path, expected, hint)
    if not path.is_file():
        raise refuse()
    try:
        with open_read_only(build_read_only_uri(path)) as connection:
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
            found = ForeignDatabase(connection)
            if not found.has_table(table):
                raise refuse()
            yield found
    except apsw.NotADBError as error:
        raise refuse() from error
    except (apsw.Error, OSError, UnicodeDecodeError) as error:  # any bytes can be stored as text
        raise InvalidInput(
            f"{path} cannot be read ({error}).",
            hint="Close the program that uses it, or open and close it once. Then import again.",
            argument="PATH",
            value=str(path),
        ) from error
