"""An index for who looks for a part of a text, where the database has the extension for it.

Without it, all texts are read: slower, with the same answer.
"""

from everkept.engines.postgres.connecting.cursor import Cursor, cursor_on
from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.searching.turns import drop, turn

EXTENSION = "pg_trgm"
METHOD, OPERATORS = "gin", "gin_trgm_ops"
NAME = "records_trigrams"

_PLACE = (
    "SELECT quote_ident(n.nspname) FROM pg_extension e "
    "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = %s"
)
_USABLE = (
    "SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('records') AND c.relname = %s AND i.indisvalid"
)


def is_wanted(cursor: Cursor) -> bool:
    """Whether it could be there, and is not or cannot be used."""
    return _place(cursor) is not None and ask(cursor, _USABLE, NAME).fetchone() is None


def build(connection: Connection) -> None:
    """Each statement on the connection is a transaction of its own."""
    cursor = cursor_on(connection)
    with turn(cursor, NAME) as is_ours:
        place = _place(cursor)
        if is_ours and place is not None and is_wanted(cursor):
            drop(cursor, NAME)  # what is left of a making that did not come to its end
            # The same expressions as in a question for a part, or it is not used.
            columns = ", ".join(f"lower({c}) {place}.{OPERATORS}" for c in ("name", "type", "text"))
            cursor.execute(
                f"CREATE INDEX CONCURRENTLY {NAME} ON records USING {METHOD} ({columns}) "
                "WHERE deleted_at IS NULL"
            )


def _place(cursor: Cursor) -> str | None:
    row = ask(cursor, _PLACE, EXTENSION).fetchone()
    return None if row is None else row[0]
