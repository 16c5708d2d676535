"""Libraries of several servers on one PostgreSQL schema."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from everkept.core.times import Clock, read_clock
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.library import PostgresLibrary
from postgres_server import fresh_schema, shared


def library_over(database: Database, *, clock: Clock = read_clock) -> PostgresLibrary:
    return PostgresLibrary(database, mode="local-server", place="postgresql://127.0.0.1", clock=clock)


def fresh_library(clock: Clock = read_clock) -> PostgresLibrary:
    return library_over(shared().database(), clock=clock)


class Shelf:
    """One schema of a server, and whoever uses it."""

    def __init__(self) -> None:
        self.schema = fresh_schema()
        self._opened: list[PostgresLibrary] = []

    def library(self, **options: Any) -> PostgresLibrary:
        """One more, as another process has it."""
        self._opened.append(library_over(shared().database(self.schema), **options))
        return self._opened[-1]

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """What the tables themselves say."""
        with self.connection() as connection:
            return connection.execute(question.encode()).fetchall()

    def connection(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """One beside ours, whose statements are transactions of their own."""
        connection = shared().connect()
        connection.execute(f'SET search_path = "{self.schema}", public'.encode())
        return connection

    async def close(self) -> None:
        for library in self._opened:
            await library.close()


@asynccontextmanager
async def shelf_of() -> AsyncGenerator[Shelf, None]:
    made = Shelf()
    try:
        yield made
    finally:
        await made.close()
