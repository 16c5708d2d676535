"""Tables of one store, in both dialects of SurrealDB, with one writer at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from everkept.core.answers import TableFault
from everkept.engines.surreal.connection import (
    Connection,
    MissingTable,
    TransactionThrown,
    Values,
    WriteContention,
    build_put,
    retry,
)
from everkept.engines.surreal.rows import escape_text, report_damage, unescape_text
from everkept.engines.surreal.table_faults import DatabaseLayout, find_table_faults
from everkept.errors import InvalidInput, NotFound, ProjectArchived, StoreDamaged, StoreTooNew
from everkept.values import Value, field

VERSION = 1

META_DEFINITION = "DEFINE TABLE IF NOT EXISTS meta SCHEMALESS"

_TABLE_FIELDS = {
    "record": {
        "age": "int",
        "kind": "string",
        "type": "option<string>",
        "name": "option<string>",
        "name_key": "option<string>",
        "variant": "string",
        "text": "string",
        "parent": "option<record<record>>",
        "scope": "string",
        "session": "option<string>",
        "position": "option<int>",
        "place": "option<string>",
        "author": "option<string>",
        "importance": "option<float>",
        "occurred_at": "option<int>",
        "tags": "array<string>",
        "facets": "option<string>",
        "pinned": "bool",
        "automatic": "bool",
        "created_at": "int",
        "updated_at": "int",
        "deleted_at": "option<int>",
        "version": "int",
        "embedded": "option<string>",
    },
    "word": {
        "of": "record<record>",
        "age": "int",
        "kind": "string",
        "parent": "option<record<record>>",
        "name": "string",
        "text": "string",
        "context": "string",
    },
    "link": {
        "age": "int",
        "verb": "string",
        "edge": "string",
        "facets": "option<string>",
        "created_at": "int",
        "deleted_at": "option<int>",
    },
    "change": {"at": "int", "tool": "string", "client": "string", "undoes": "option<int>", "key": "option<string>"},
    "edit": {"operation": "string", "subject": "string", "item": "option<string>", "before": "option<string>"},
    "access": {"of": "record<record>", "count": "int", "last_at": "int"},
}
_TABLE_TYPES = {"link": " TYPE RELATION IN record OUT record"}
# `word` and the vector tables have none of these indexes: if a filtered column had one, version 2 would return too few
# results of the other index.
_INDEXED_FIELDS = {
    "record": ("age", "kind", "name_key", "parent", "session", "place", "embedded"),
    "link": ("edge",),
    "change": ("key",),
    "edit": ("item",),
}
WORD_COLUMNS = ("name", "text", "context")  # columns of `word` with a word index

_VECTOR_FIELDS = {
    "of": "record<record>",
    "age": "int",
    "kind": "string",
    "parent": "option<record<record>>",
    "embedding": "array<float>",
    "exact": "bytes",
}


def build_definitions(*, is_modern: bool) -> str:
    """Return all statements that create an empty store. They have no effect on an existing one."""
    searched = "FULLTEXT" if is_modern else "SEARCH"
    parts = [_build_table(name, fields, _TABLE_TYPES.get(name, "")) for name, fields in _TABLE_FIELDS.items()]
    parts += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field}"
        for table, indexed in _INDEXED_FIELDS.items()
        for field in indexed
    ]
    # Words are prepared and separated by spaces: see search.py.
    parts.append("DEFINE ANALYZER IF NOT EXISTS prepared TOKENIZERS blank")
    parts += [
        f"DEFINE INDEX IF NOT EXISTS word_{field} ON word FIELDS {field} {searched} ANALYZER prepared BM25(1.2,0.75)"
        for field in WORD_COLUMNS
    ]
    parts.append("INSERT IGNORE INTO meta {id: 'store', seq: 0, turn: 0, ages: 0, moves: 0, models: []}")
    # Last: a store with a version has everything that belongs to it.
    parts.append(f"UPDATE meta:store SET schema = {VERSION}")
    return "; ".join(parts)


def build_layout(models: "Sequence[VectorModel]") -> DatabaseLayout:
    """Return what `build_definitions` and `build_vector_definitions` create."""
    vectors = [model.table for model in models]
    ends = {"in": "record<record>", "out": "record<record>"}
    return DatabaseLayout(
        {
            **_TABLE_FIELDS,
            "link": {**_TABLE_FIELDS["link"], **ends},
            "meta": {},
            **dict.fromkeys(vectors, _VECTOR_FIELDS),
        },
        {**_INDEXED_FIELDS, "word": WORD_COLUMNS, **dict.fromkeys(vectors, ("embedding",))},
        analyzers=("prepared",),
    )


def build_vector_definitions(table: str, dimensions: int) -> str:
    """Return the statements that create the table for one model's vectors of one length."""
    return (
        f"{_build_table(table, _VECTOR_FIELDS)}; "
        f"DEFINE INDEX IF NOT EXISTS {table}_embedding ON {table} FIELDS embedding "
        f"HNSW DIMENSION {dimensions} DIST COSINE TYPE F32 EFC 150 M 12"
    )


def _build_table(name: str, fields: dict[str, str], kind: str = "") -> str:
    defined = (f"DEFINE FIELD IF NOT EXISTS {field} ON {name} TYPE {type_}" for field, type_ in fields.items())
    return "; ".join([f"DEFINE TABLE IF NOT EXISTS {name}{kind} SCHEMAFULL", *defined])


T = TypeVar("T")

STATE_MOVED = "moved"
_STATE_QUERY = "(SELECT * FROM meta:store)[0]"


class VectorModel(Value):
    """Model with stored vectors, and the table for its vectors of one length."""

    name: str
    dimensions: int
    table: str

    def to_row(self) -> dict[str, Any]:
        return {"name": escape_text(self.name), "dimensions": self.dimensions, "table": self.table}


class StoreState(Value):
    """Counters of a store. A write is planned for one state."""

    turn: int  # advances with each write except that of a vector
    seq: int  # number of the newest change
    ages: int  # records and links that were ever added
    moves: int  # vectors that were ever added or removed
    models: tuple[VectorModel, ...]
    status: str | None  # status of the project

    @classmethod
    @report_damage
    def from_row(cls, row: Mapping[str, Any]) -> "StoreState":
        if not all(isinstance(row[name], int) for name in ("turn", "seq", "ages", "moves")):
            raise TypeError("a counter is not a number")
        return cls(
            row["turn"],
            row["seq"],
            row["ages"],
            row["moves"],
            tuple(VectorModel(unescape_text(m["name"]), m["dimensions"], m["table"]) for m in row["models"]),
            row.get("status"),
        )


class TransactionBuilder(Value, frozen=False):
    """Statements of one transaction, with their values.

    A row that would be deleted and created again is overwritten: in some versions it would only be deleted.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    moves: int = 0  # vectors that the transaction adds or removes
    _statements: list[str] = field(default_factory=list[str])
    _gone: dict[str, Any] = field(default_factory=dict[str, Any])
    _kept: set[str] = field(default_factory=set[str])

    def add(self, statement: str) -> None:
        self._statements.append(statement)

    def bind(self, value: Any) -> str:
        """Return the parameter that stands for this value in a statement."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f"${name}"

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, relation: str = "") -> None:
        if rows:
            self.add(f"INSERT {relation} INTO {table} {self.bind(rows)} RETURN NONE")

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write these rows, whether they exist or not."""
        if rows:
            self.keep(row["id"] for row in rows)
            self.add(f"FOR $row IN {self.bind(rows)} {{ {build_put('$row.id', '$row')} }}")

    def merge(self, fields: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
        """Set some fields of existing rows."""
        if fields:
            rows = [{"id": row_id, "fields": values} for row_id, values in fields]
            self.add(f"FOR $row IN {self.bind(rows)} {{ UPDATE $row.id MERGE $row.fields RETURN NONE }}")

    def keep(self, ids: Iterable[Any]) -> None:
        """Keep these rows even if they are passed to `delete`."""
        self._kept |= {repr(row_id) for row_id in ids}

    def delete(self, ids: Iterable[Any]) -> None:
        self._gone |= {repr(row_id): row_id for row_id in ids}

    def list_statements(self) -> list[str]:
        """Return the statements, deletions first."""
        gone = [row_id for name, row_id in self._gone.items() if name not in self._kept]
        deletion = [f"DELETE {self.bind(gone)} RETURN NONE"] if gone else []
        return [*deletion, *self._statements]


class StoreTables:
    """Tables of one store. The first query connects and creates them."""

    def __init__(self, connection: Connection, database: str, name: str, *, of_project: bool) -> None:
        self._connection = connection
        self._is_of_project = of_project
        self._database = database
        self._name = name
        self._made_since: int | None = None  # opening of the connection after which the tables were checked
        self._lacks_table = False  # a query found a table missing since they were checked
        self._making = asyncio.Lock()
        # Keeps tasks of one process from conflicting with each other.
        self._turns = asyncio.Lock()

    @property
    def is_modern(self) -> bool:
        return self._connection.is_modern

    async def measure_files(self) -> int | None:
        """Return the bytes of the files of all stores, or None if they are unknown."""
        return await self._connection.measure_files()

    async def ensure_ready(self) -> None:
        """Create missing tables and detect the dialect."""
        await self._connection.open()
        if self._is_ready:
            return
        async with self._making:
            while not self._is_ready:
                opening = self._connection.openings
                await retry(self._create_tables)
                self._made_since = opening

    async def ask(self, statement: str, **values: Any) -> Any:
        """Return the result of one statement."""
        return (await self.ask_all([statement], values))[0]

    async def ask_all(self, statements: Sequence[str], values: Values) -> list[Any]:
        """Return the result of each statement. Each may see another state."""

        async def attempt() -> list[Any]:
            await self.ensure_ready()
            return await self._run("; ".join(statements), values)

        return await retry(attempt)

    async def read(self, **parts: tuple[str, Any]) -> tuple[StoreState, dict[str, Any]]:
        """Return the state and the result of each part, in one statement. In a part, `$` stands for its value."""
        texts = [f"{name}: ({text.replace('$', f'${name}')})" for name, (text, _) in parts.items()]
        found = await self.ask(
            f"RETURN {{ state: {_STATE_QUERY}, {', '.join(texts)} }}",
            **{name: value for name, (_, value) in parts.items()},
        )
        return self._decode_state(found.pop("state")), found

    async def read_state(self) -> StoreState:
        async def attempt() -> StoreState:
            return self._decode_state(await self.ask(f"RETURN {_STATE_QUERY}"))

        return await retry(attempt)

    async def alter(self, statement: str, **values: Any) -> Any:
        """Run a statement that needs no turn, because no plan reads what it writes."""
        return await retry(lambda: self.ask(statement, **values))

    async def define(self, statements: str) -> None:
        await self.ensure_ready()
        await retry(lambda: self._connection.run(self._database, statements))

    async def run_in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that reads and then writes. Repeat it while other writes come in between."""
        async with self._turns:
            return await retry(work)

    async def write(
        self, seen: StoreState, writing: TransactionBuilder, after: Mapping[str, Any], *, vectors: bool = False
    ) -> None:
        """Write everything, or raise WriteContention if the state has changed since it was read.

        `after` has the new counters of the store. With `vectors`, a vector that was added or removed also counts as a
        change.
        """
        watched = {"turn": seen.turn, "status": seen.status}
        if vectors or writing.moves:
            watched["moves"] = seen.moves
        state = {**after, "moves": seen.moves + writing.moves} if writing.moves else {**after}
        text = "; ".join(
            [
                "BEGIN",
                f"LET $now = {_STATE_QUERY}",
                *(f"IF $now.{name} != $seen.{name} {{ THROW '{STATE_MOVED}' }}" for name in watched),
                *writing.list_statements(),
                "UPDATE meta:store MERGE $state RETURN NONE",
                "COMMIT",
            ]
        )
        values = {**writing.values, "seen": watched, "state": state}
        try:
            await self._run(text, values)
        except TransactionThrown as thrown:
            if str(thrown) == STATE_MOVED:
                raise WriteContention(STATE_MOVED) from thrown
            raise

    async def find_table_faults(self) -> list[TableFault]:
        """Return what is not as Everkept creates it."""
        state = await self.read_state()
        return await find_table_faults(self._connection, self._database, build_layout(state.models))

    def check_open(self, state: StoreState) -> None:
        """Raise ProjectArchived if the project is archived: it can be read but not written."""
        if state.status == "archived":
            raise ProjectArchived(self._name)

    @property
    def _is_ready(self) -> bool:
        if self._made_since is None:
            return False
        # An in-memory server may have been restarted. Creating the tables of a project again would restore a deleted
        # project.
        return self._is_of_project or self._made_since == self._connection.openings

    async def _create_tables(self) -> None:
        text = f"DEFINE DATABASE IF NOT EXISTS `{self._database}`; {META_DEFINITION}; RETURN {_STATE_QUERY}"
        found = (await self._connection.run(self._database, text))[-1]
        version = found and found.get("schema")
        if version == VERSION:
            if self._lacks_table:
                self._lacks_table = False  # a restored backup may bring the table
                raise StoreDamaged(
                    f"A table of the SurrealDB database {self._database} is missing.",
                    hint="To see which one, run `everkept doctor`. Restore a backup of the database.",
                )
            return
        self._lacks_table = False
        if version is not None and version > VERSION:
            raise StoreTooNew(
                f"Database {self._database} was written by a newer version (schema {version}; this version supports "
                f"{VERSION}).",
                hint="Update Everkept on this machine, then restart your assistants.",
                found=version,
                known=VERSION,
            )
        await self._connection.run(self._database, build_definitions(is_modern=self._connection.is_modern))

    async def _run(self, text: str, values: Values) -> list[Any]:
        try:
            return await self._connection.run(self._database, text, values)
        except MissingTable as missing:
            self._lacks_table = True
            raise self._build_missing_error() from missing
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "The text contains an unpaired surrogate (invalid Unicode), which cannot be stored.", hint="Remove it."
            ) from error

    def _decode_state(self, row: Mapping[str, Any] | None) -> StoreState:
        if row is None or row.get("status") == "deleted":
            raise self._build_missing_error()
        return StoreState.from_row(row)

    def _build_missing_error(self) -> Exception:
        if self._is_of_project:
            return NotFound("project", self._name, hint="It was deleted. Select another project.")
        # This store is never deleted, so an in-memory server was restarted.
        self._made_since = None
        return WriteContention("the tables do not exist yet")
