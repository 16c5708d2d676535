"""Tables of PostgreSQL, with records that are put there as whoever commits would put them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from everkept.core.ports import RecordVector
from everkept.core.records import Record
from everkept.engines.postgres.rows import DERIVED_COLUMNS, FIELDS, encode_record, escape_text
from everkept.engines.postgres.schema import LAYOUT
from everkept.engines.postgres.statements import Cursor, open_cursor
from everkept.engines.postgres.vectors import put_vectors
from everkept.engines.postgres.word_index import build_tsvector
from postgres_server import shared
from records import memory

MODEL = "test-model"

said = partial(memory, type=None)  # found by the words of its text alone


class Tables:
    """A schema and one of its stores. Each statement is a transaction."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.connection = self.connected()
        self.connection.execute(f"CREATE SCHEMA {schema}".encode())
        for statement in LAYOUT.steps[0]:
            self.connection.execute(statement.encode())
        self.store = self.another_store()

    def connected(self) -> "psycopg.Connection[tuple[Any, ...]]":
        options = f"-c search_path={self.schema},public"
        return psycopg.connect(shared().url, autocommit=True, options=options)

    @property
    def cursor(self) -> Cursor:
        return open_cursor(self.connection)

    def another_store(self) -> int:
        return self.value("INSERT INTO stores(name) SELECT 'store ' || count(*) FROM stores RETURNING number")

    def value(self, statement: str, *values: Any) -> Any:
        row = self.connection.execute(statement.encode(), values).fetchone()
        return row and row[0]

    def add(self, *items: Record, store: int = 0, context: Sequence[str] = ()) -> None:
        number = store or self.store
        columns = ", ".join(("store", "age", "words", *FIELDS, *DERIVED_COLUMNS))
        places = ", ".join(["%s"] * (3 + len(FIELDS) + len(DERIVED_COLUMNS)))
        age = self.value("SELECT ages FROM stores WHERE number = %s", number)
        rows = [
            (number, age + n, build_tsvector(number, item, context), *encode_record(item))
            for n, item in enumerate(items, 1)
        ]
        statement = f"INSERT INTO records({columns}) VALUES ({places})"
        with self.connection.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)
        self.connection.execute("UPDATE stores SET ages = ages + %s WHERE number = %s", (len(items), number))

    def remove(self, record_id: str) -> None:
        self.connection.execute(
            "UPDATE records SET deleted_at = 1, words = NULL WHERE store = %s AND id = %s",
            (self.store, escape_text(record_id)),
        )

    def embed(self, vectors: NDArray[np.float32], model: str = MODEL) -> None:
        """Records 0, 1, 2 ... with these vectors, each as important as its number is large."""
        size = len(vectors)
        self.add(*(said("text", id=str(n), importance=n / size) for n in range(size)))
        items = [RecordVector(str(n), 1, vector) for n, vector in enumerate(vectors)]
        assert put_vectors(self.cursor, self.store, model, items) == size
