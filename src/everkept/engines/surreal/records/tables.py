"""The tables of one store in its database: made at the first use, and written to in turns."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from everkept.engines.surreal.connecting.attempts import retried
from everkept.engines.surreal.connecting.connection import (
    Connection,
    Contended,
    Missing,
    Thrown,
    Values,
    placing,
)
from everkept.engines.surreal.records.rows import given, kept, readable
from everkept.engines.surreal.records.schema import META, VERSION, definitions
from everkept.errors import InvalidInput, NotFound, ProjectArchived, StoreTooNew
from everkept.values import Value, field

T = TypeVar("T")

MOVED = "moved"
_STATE = "(SELECT * FROM meta:store)[0]"


class Model(Value):
    """A model whose vectors are here, and the table that has those of one length."""

    name: str
    dimensions: int
    table: str

    def row(self) -> dict[str, Any]:
        return {"name": kept(self.name), "dimensions": self.dimensions, "table": self.table}


class State(Value):
    """What the store says of itself: whoever plans a write, plans it for one of these."""

    turn: int  # one more after each write but that of a vector
    seq: int  # of the newest change
    ages: int  # records and links that ever came
    moves: int  # vectors that came or went
    models: tuple[Model, ...]
    status: str | None  # what became of its project

    @classmethod
    @readable
    def of(cls, row: Mapping[str, Any]) -> "State":
        return cls(
            row["turn"],
            row["seq"],
            row["ages"],
            row["moves"],
            tuple(Model(given(m["name"]), m["dimensions"], m["table"]) for m in row["models"]),
            row.get("status"),
        )


class Writing(Value, frozen=False):
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

    def value(self, value: Any) -> str:
        """What a statement writes where it means this value."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f"${name}"

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], *, relation: str = "") -> None:
        if rows:
            self.add(f"INSERT {relation} INTO {table} {self.value(rows)} RETURN NONE")

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Each becomes what it says, whether it is there or not."""
        if rows:
            self.keep(row["id"] for row in rows)
            self.add(f"FOR $row IN {self.value(rows)} {{ {placing('$row.id', '$row')} }}")

    def merge(self, fields: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
        """Sets some fields of rows that are there."""
        if fields:
            rows = [{"id": row_id, "fields": values} for row_id, values in fields]
            self.add(
                f"FOR $row IN {self.value(rows)} {{ UPDATE $row.id MERGE $row.fields RETURN NONE }}"
            )

    def keep(self, ids: Iterable[Any]) -> None:
        """These rows stay, whoever says that they go."""
        self._kept |= {repr(row_id) for row_id in ids}

    def delete(self, ids: Iterable[Any]) -> None:
        self._gone |= {repr(row_id): row_id for row_id in ids}

    def statements(self) -> list[str]:
        """What goes, goes first."""
        gone = [row_id for name, row_id in self._gone.items() if name not in self._kept]
        deletion = [f"DELETE {self.value(gone)} RETURN NONE"] if gone else []
        return [*deletion, *self._statements]


class Tables:
    """One store's tables. Nothing is asked or made before the first question."""

    def __init__(
        self, connection: Connection, database: str, name: str, *, of_project: bool
    ) -> None:
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

    async def ready(self) -> None:
        """The tables are there behind it, and the dialect is known."""
        await self._connection.open()
        if self._is_made:
            return
        async with self._making:
            while not self._is_made:
                opening = self._connection.openings
                await retried(self._make)
                self._made_since = opening

    async def ask(self, statement: str, **values: Any) -> Any:
        """What one statement gives."""
        return (await self.ask_all([statement], values))[0]

    async def ask_all(self, statements: Sequence[str], values: Values) -> list[Any]:
        """What each of them gives; each may see another state."""

        async def attempt() -> list[Any]:
            await self.ready()
            return await self._run("; ".join(statements), values)

        return await retried(attempt)

    async def read(self, **parts: tuple[str, Any]) -> tuple[State, dict[str, Any]]:
        """The state, and what was asked for: each a text that says $ itself for its own value."""
        texts = [f"{name}: ({text.replace('$', f'${name}')})" for name, (text, _) in parts.items()]
        found = await self.ask(
            f"RETURN {{ state: {_STATE}, {', '.join(texts)} }}",
            **{name: value for name, (_, value) in parts.items()},
        )
        return self._checked(found.pop("state")), found

    async def state(self) -> State:
        async def attempt() -> State:
            return self._checked(await self.ask(f"RETURN {_STATE}"))

        return await retried(attempt)

    async def alter(self, statement: str, **values: Any) -> Any:
        """One statement that needs no turn: no part of a plan reads what it writes."""
        return await retried(lambda: self.ask(statement, **values))

    async def define(self, statements: str) -> None:
        await self.ready()
        await retried(lambda: self._connection.run(self._database, statements))

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work that reads and then writes, again and again while others come in between."""
        async with self._turns:
            return await retried(work)

    async def write(
        self, seen: State, writing: Writing, after: Mapping[str, Any], *, vectors: bool = False
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
                f"LET $now = {_STATE}",
                *(f"IF $now.{name} != $seen.{name} {{ THROW '{MOVED}' }}" for name in watched),
                *writing.statements(),
                "UPDATE meta:store MERGE $state RETURN NONE",
                "COMMIT",
            ]
        )
        values = {**writing.values, "seen": watched, "state": state}
        try:
            await self._run(text, values)
        except Thrown as thrown:
            if str(thrown) == MOVED:
                raise Contended(MOVED) from thrown
            raise

    def check_open(self, state: State) -> None:
        """Raises ProjectArchived: what is put away can be read by who has it, and not written."""
        if state.status == "archived":
            raise ProjectArchived(self._name)

    @property
    def _is_made(self) -> bool:
        if self._made_since is None:
            return False
        # A server that keeps nothing on disk may have been started anew: who made a project's
        # tables once more would bring back what is no more.
        return self._is_of_project or self._made_since == self._connection.openings

    async def _make(self) -> None:
        text = f"DEFINE DATABASE IF NOT EXISTS `{self._database}`; {META}; RETURN {_STATE}"
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
        await self._connection.run(
            self._database, definitions(is_modern=self._connection.is_modern)
        )

    async def _run(self, text: str, values: Values) -> list[Any]:
        try:
            return await self._connection.run(self._database, text, values)
        except Missing as missing:
            raise self._gone() from missing
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "A text holds half a character, which cannot be stored.", hint="Remove it."
            ) from error

    def _checked(self, row: Mapping[str, Any] | None) -> State:
        if row is None or row.get("status") == "deleted":
            raise self._gone()
        return State.of(row)

    def _gone(self) -> Exception:
        if self._is_of_project:
            return NotFound("project", self._name, hint="It was deleted meanwhile.")
        # Nobody deletes it: a server that keeps nothing on disk was started anew.
        self._made_since = None
        return Contended("it is yet to be made")
