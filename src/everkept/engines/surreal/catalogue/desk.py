"""The library's own database: its tables, and texts to it, tried again while others write."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from everkept.core.text import clipped
from everkept.engines.surreal.connecting.attempts import retried
from everkept.engines.surreal.connecting.connection import (
    Connection,
    Contended,
    Missing,
    Thrown,
    Values,
    quoted,
)
from everkept.errors import InvalidInput, StoreTooNew

T = TypeVar("T")

VERSION = 1  # of the tables below

# Whoever changes projects, folders or silences takes a turn: so two that do never overlap, even
# where they touch different rows.
TURN = "UPSERT meta:library SET turn += 1"

WHOSE_TURN = "RETURN (SELECT VALUE turn FROM ONLY meta:library) ?? 0"
UNDISTURBED = "IF ((SELECT VALUE turn FROM ONLY meta:library) ?? 0) != $turn { THROW 'disturbed' }"

_FIRST = """
DEFINE TABLE IF NOT EXISTS meta SCHEMAFULL;
DEFINE FIELD IF NOT EXISTS version ON meta TYPE option<int>;
DEFINE FIELD IF NOT EXISTS turn ON meta TYPE option<int>;
DEFINE FIELD IF NOT EXISTS last ON meta TYPE option<int>;
SELECT VALUE version FROM ONLY meta:library;
"""
_TABLES: Mapping[str, Mapping[str, str]] = {
    "project": {
        "name": "string",
        "description": "string",
        "status": "string",
        "created_at": "int",
        "updated_at": "int",
        "off_since": "option<int>",
    },
    "workspace": {"path": "string", "project": "record<project>"},
    "switching": {
        "spans": "array<array<int>>",  # one that lasts has no second number
        "folders": "array<string>",
        "deleted_at": "option<int>",
    },
    "leaving": {"at": "int"},  # by the id of a project whose database is to go
    "note": {"key": "string", "value": "string"},
    "token": {"label": "string", "secret_hash": "string", "created_at": "int"},
    "search": {
        "at": "int",
        "tool": "string",
        "query": "string",
        "results": "int",
        "milliseconds": "float",
        "session": "option<string>",
        "filters": "string",
    },
    "usage": {
        "tool": "string",
        "calls": "int",
        "errors": "int",
        "total_ms": "float",
        "longest_ms": "float",
        "last_at": "int",
    },
}
_UNIQUE = {"project": "name", "token": "secret_hash"}


class Desk:
    """Nothing is asked or made before the first text."""

    def __init__(self, connection: Connection, database: str) -> None:
        self.connection = connection
        self.database = database
        self._ready_since: int | None = None  # by the openings of the connection
        self._readying = asyncio.Lock()
        # Tasks of one process need not run into each other.
        self._altering = asyncio.Lock()

    async def ask(self, statements: str, values: Values | None = None) -> list[Any]:
        _check_texts(values)
        await self._ready()
        try:
            return await self.connection.run(self.database, statements, values)
        except Missing:  # a server that keeps nothing on disk was started anew
            self.forget()
            await self._ready()
            return await self.connection.run(self.database, statements, values)

    async def alter(self, statements: str, values: Values | None = None) -> list[Any]:
        """All of it or nothing, where it is one statement or one transaction."""
        async with self._altering:
            return await retried(lambda: self.ask(statements, values))

    @property
    def version(self) -> str:
        """Of the database, as exactly as it is known without asking."""
        if self._ready_since is None:
            return ""
        return self.connection.version or ("3.x" if self.connection.is_modern else "2.x")

    def forget(self) -> None:
        """What was known of the database, which may be another the next time."""
        self._ready_since = None

    async def _ready(self) -> None:
        await self.connection.open()
        if self._ready_since == self.connection.openings:
            return
        async with self._readying:
            while self._ready_since != (opening := self.connection.openings):
                await retried(self._make)
                self._ready_since = opening

    async def _make(self) -> None:
        found = (
            await self.connection.run(
                self.database, f"DEFINE DATABASE IF NOT EXISTS {quoted(self.database)}; {_FIRST}"
            )
        )[-1]
        if found is not None and found > VERSION:
            raise StoreTooNew(
                f"Database {self.database} was written by a newer version of the program.",
                hint="Update Everkept.",
                found=found,
                known=VERSION,
            )
        if found != VERSION:
            await self.connection.run(self.database, _definitions())


async def undisturbed(desk: Desk, text: str, values: Values) -> None:
    """For a text that begins with what says so: raises Contended where somebody had a turn."""
    try:
        await desk.alter(text, values)
    except Thrown as thrown:
        if str(thrown) == "disturbed":
            raise Contended(str(thrown)) from thrown
        raise


def row_id(table: str, key: str | int) -> Any:
    # Imported here: the client takes half a second.
    from surrealdb import RecordID

    return RecordID(table, key)


def _check_texts(value: Any) -> None:
    """Some versions cannot store what others can; none of them is asked to."""
    if isinstance(value, str) and "\0" in value:
        shown = clipped(ascii(value)[1:-1])
        raise InvalidInput(f'"{shown}" holds a character that cannot be stored.', value=shown)
    if isinstance(value, Mapping):
        for each in cast(Mapping[Any, Any], value).values():
            _check_texts(each)
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            _check_texts(each)


def _definitions() -> str:
    lines: list[str] = []
    for table, fields in _TABLES.items():
        lines.append(f"DEFINE TABLE IF NOT EXISTS {table} SCHEMAFULL")
        lines += [
            f"DEFINE FIELD IF NOT EXISTS {name} ON {table} TYPE {kind}"
            for name, kind in fields.items()
        ]
    lines += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field} UNIQUE"
        for table, field in _UNIQUE.items()
    ]
    lines.append(f"UPSERT meta:library SET version = {VERSION}")
    return ";\n".join(lines) + ";"
