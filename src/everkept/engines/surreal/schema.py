"""The tables of one store, in both dialects of SurrealDB, with one writer at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
from everkept.errors import InvalidInput, NotFound, ProjectArchived, StoreTooNew
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
# Neither `word` nor a table of vectors has any of these: with one on a column of a condition,
# version 2 gives too few of what the other index finds.
_INDEXED_FIELDS = {
    "record": ("age", "kind", "name_key", "parent", "session", "place", "embedded"),
    "link": ("edge",),
    "change": ("key",),
    "edit": ("item",),
}
WORD_COLUMNS = ("name", "text", "context")  # the columns of `word` that are found by words

_VECTOR_FIELDS = {
    "of": "record<record>",
    "age": "int",
    "kind": "string",
    "parent": "option<record<record>>",
    "embedding": "array<float>",
    "exact": "bytes",
}


def build_definitions(*, is_modern: bool) -> str:
    """All statements that make an empty store; harmless where it is made already."""
    searched = "FULLTEXT" if is_modern else "SEARCH"
    parts = [_build_table(name, fields, _TABLE_TYPES.get(name, "")) for name, fields in _TABLE_FIELDS.items()]
    parts += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field}"
        for table, indexed in _INDEXED_FIELDS.items()
        for field in indexed
    ]
    # Words come prepared, with blanks between them: see wording.py.
    parts.append("DEFINE ANALYZER IF NOT EXISTS prepared TOKENIZERS blank")
    parts += [
        f"DEFINE INDEX IF NOT EXISTS word_{field} ON word FIELDS {field} {searched} ANALYZER prepared BM25(1.2,0.75)"
        for field in WORD_COLUMNS
    ]
    parts.append("INSERT IGNORE INTO meta {id: 'store', seq: 0, turn: 0, ages: 0, moves: 0, models: []}")
    # Last: whoever finds a version finds all that belongs to it.
    parts.append(f"UPDATE meta:store SET schema = {VERSION}")
    return "; ".join(parts)


def build_vector_definitions(table: str, dimensions: int) -> str:
    """One model's vectors of one length."""
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
    """A model whose vectors are here, and the table that has those of one length."""

    name: str
    dimensions: int
    table: str

    def to_row(self) -> dict[str, Any]:
        return {"name": escape_text(self.name), "dimensions": self.dimensions, "table": self.table}


class StoreState(Value):
    """What the store says of itself: whoever plans a write, plans it for one of these."""

    turn: int  # one more after each write but that of a vector
    seq: int  # of the newest change
    ages: int  # records and links that ever came
    moves: int  # vectors that came or went
    models: tuple[VectorModel, ...]
    status: str | None  # what became of its project

    @classmethod
    @report_damage
    def from_row(cls, row: Mapping[str, Any]) -> "StoreState":
        return cls(
            row["turn"],
            row["seq"],
            row["ages"],
            row["moves"],
            tuple(VectorModel(unescape_text(m["name"]), m["dimensions"], m["table"]) for m in row["models"]),
            row.get("status"),
        )


class TransactionBuilder(Value, frozen=False):
    """The statements of one transaction, with their values.

    What is to go and to come again is written over: in some versions it would only go.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    moves: int = 0  # vectors that come or go by it
    _statements: list[str] = field(default_factory=list[str])
    _gone: dict[str, Any] = field(default_factory=dict[str, Any])
    _kept: set[str] = field(default_factory=set[str])

    def add(self, statement: str) -> None:
        self._statements.append(statement)

    def bind(self, value: Any) -> str:
        """What a statement writes where it means this value."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f"${name}"

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, relation: str = "") -> None:
        if rows:
            self.add(f"INSERT {relation} INTO {table} {self.bind(rows)} RETURN NONE")

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Each becomes what it says, whether it is there or not."""
        if rows:
            self.keep(row["id"] for row in rows)
            self.add(f"FOR $row IN {self.bind(rows)} {{ {build_put('$row.id', '$row')} }}")

    def merge(self, fields: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
        """Sets some fields of rows that are there."""
        if fields:
            rows = [{"id": row_id, "fields": values} for row_id, values in fields]
            self.add(f"FOR $row IN {self.bind(rows)} {{ UPDATE $row.id MERGE $row.fields RETURN NONE }}")

    def keep(self, ids: Iterable[Any]) -> None:
        """These rows stay, whoever says that they go."""
        self._kept |= {repr(row_id) for row_id in ids}

    def delete(self, ids: Iterable[Any]) -> None:
        self._gone |= {repr(row_id): row_id for row_id in ids}

    def list_statements(self) -> list[str]:
        """What goes, goes first."""
        gone = [row_id for name, row_id in self._gone.items() if name not in self._kept]
        deletion = [f"DELETE {self.bind(gone)} RETURN NONE"] if gone else []
        return [*deletion, *self._statements]


class StoreTables:
    """One store's tables. Nothing is asked or made before the first question."""

    def __init__(self, connection: Connection, database: str, name: str, *, of_project: bool) -> None:
        self._connection = connection
        self._is_of_project = of_project
        self._database = database
        self._name = name
        self._made_since: int | None = None  # by the openings of the connection
        self._making = asyncio.Lock()
        # Tasks of one process need not run into each other.
        self._turns = asyncio.Lock()

    @property
    def is_modern(self) -> bool:
        return self._connection.is_modern

    async def ensure_ready(self) -> None:
        """The tables are there behind it, and the dialect is known."""
        await self._connection.open()
        if self._is_ready:
            return
        async with self._making:
            while not self._is_ready:
                opening = self._connection.openings
                await retry(self._create_tables)
                self._made_since = opening

    async def ask(self, statement: str, **values: Any) -> Any:
        """What one statement gives."""
        return (await self.ask_all([statement], values))[0]

    async def ask_all(self, statements: Sequence[str], values: Values) -> list[Any]:
        """What each of them gives; each may see another state."""

        async def attempt() -> list[Any]:
            await self.ensure_ready()
            return await self._run("; ".join(statements), values)

        return await retry(attempt)

    async def read(self, **parts: tuple[str, Any]) -> tuple[StoreState, dict[str, Any]]:
        """The state, and what was asked for: each a text that says $ itself for its own value."""
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
        """One statement that needs no turn: no part of a plan reads what it writes."""
        return await retry(lambda: self.ask(statement, **values))

    async def define(self, statements: str) -> None:
        await self.ensure_ready()
        await retry(lambda: self._connection.run(self._database, statements))

    async def run_in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work that reads and then writes, again and again while others come in between."""
        async with self._turns:
            return await retry(work)

    async def write(
        self, seen: StoreState, writing: TransactionBuilder, after: Mapping[str, Any], *, vectors: bool = False
    ) -> None:
        """All of it, or Contended where it was planned for another state.

        `after` is what the store says of itself then. With `vectors` nobody may have brought or
        taken one meanwhile either.
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

    def check_open(self, state: StoreState) -> None:
        """Raises ProjectArchived: what is put away can be read by who has it, and not written."""
        if state.status == "archived":
            raise ProjectArchived(self._name)

    @property
    def _is_ready(self) -> bool:
        if self._made_since is None:
            return False
        # A server that keeps nothing on disk may have been started anew: who made a project's
        # tables once more would bring back what is no more.
        return self._is_of_project or self._made_since == self._connection.openings

    async def _create_tables(self) -> None:
        text = f"DEFINE DATABASE IF NOT EXISTS `{self._database}`; {META_DEFINITION}; RETURN {_STATE_QUERY}"
        found = (await self._connection.run(self._database, text))[-1]
        version = found and found.get("schema")
        if version == VERSION:
            return
        if version is not None and version > VERSION:
            raise StoreTooNew(
                f"Database {self._database} was written by a newer version of the program.",
                hint="Update Everkept.",
                found=version,
                known=VERSION,
            )
        await self._connection.run(self._database, build_definitions(is_modern=self._connection.is_modern))

    async def _run(self, text: str, values: Values) -> list[Any]:
        try:
            return await self._connection.run(self._database, text, values)
        except MissingTable as missing:
            raise self._build_missing_error() from missing
        except UnicodeEncodeError as error:
            raise InvalidInput("A text holds half a character, which cannot be stored.", hint="Remove it.") from error

    def _decode_state(self, row: Mapping[str, Any] | None) -> StoreState:
        if row is None or row.get("status") == "deleted":
            raise self._build_missing_error()
        return StoreState.from_row(row)

    def _build_missing_error(self) -> Exception:
        if self._is_of_project:
            return NotFound("project", self._name, hint="It was deleted meanwhile.")
        # Nobody deletes it: a server that keeps nothing on disk was started anew.
        self._made_since = None
        return WriteContention("it is yet to be made")
