"""What the server knows of the tables: without that its plans are bad until it looks by itself."""

from typing import NamedTuple

from everkept.engines.postgres.connecting.cursor import Cursor, cursor_on
from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.records.asking import ask

FIRST = 1_024  # records and links of a store, from which on it matters

_TABLES = ("records", "vectors", "edits")
# Nothing is known of it, or of less than half of it. Its pages are looked at too, for ages count
# links and what is gone.
_IS_STALE = """
SELECT NOT EXISTS (SELECT FROM pg_stats WHERE schemaname = current_schema()
        AND tablename = 'records')
    OR (c.reltuples < (SELECT sum(ages) FROM stores) / 2 AND c.relpages
        < pg_relation_size(c.oid) / current_setting('block_size')::integer / 2)
FROM pg_class c WHERE c.oid = to_regclass('records') AND (SELECT sum(ages) FROM stores) >= %s
"""


class Growth(NamedTuple):
    """Ages of a store, before something came and after."""

    before: int
    after: int

    @property
    def is_doubling(self) -> bool:
        """Whether it has passed a power of two: for one of those who write together it is so."""
        return self.after >= FIRST and self.before.bit_length() < self.after.bit_length()


def is_stale(cursor: Cursor) -> bool:
    row = ask(cursor, _IS_STALE, FIRST).fetchone()
    return row is not None and bool(row[0])


def gather(connection: Connection) -> None:
    cursor_on(connection).execute(f"ANALYZE {', '.join(_TABLES)}")
