"""Comparison of the tables of a schema with those that Everkept creates.

The statements that create the tables run a second time, as temporary tables in a transaction that is rolled back. So
the same server describes both, whatever its version, and nothing is changed.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psycopg

from everkept.core.answers import TableFault, list_table_faults
from everkept.engines.postgres.connection import Connection, translate_error
from everkept.engines.postgres.schema import (
    META_TABLE,
    TRIGRAM_INDEX,
    VECTOR_INDEX_PREFIX,
    Layout,
    find_version,
    quote_name,
)
from everkept.errors import EverkeptError, StoreDamaged

_Part = tuple[str, str]  # kind and name

# Kind, name and definition of everything in a schema. NOT NULL constraints are properties of their columns.
_PARTS_QUERY = """
SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
           WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table'
           ELSE 'composite type' END,
       relname, concat(relrowsecurity, relforcerowsecurity, relpersistence = 'u')
FROM pg_class WHERE relnamespace = %(schema)s AND relkind NOT IN ('i', 'I', 't')
UNION ALL
SELECT 'column', relname || '.' || attname, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity,
           attgenerated, (SELECT collname FROM pg_collation WHERE oid = attcollation), pg_get_expr(adbin, adrelid))
FROM pg_attribute JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = %(schema)s AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint', conname, concat_ws(' ', relname, pg_get_constraintdef(k.oid), convalidated)
FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid WHERE relnamespace = %(schema)s AND contype <> 'n'
UNION ALL
SELECT 'constraint', k.conname, 'of a table in another schema'
FROM pg_constraint k JOIN pg_class f ON f.oid = k.confrelid JOIN pg_class c ON c.oid = k.conrelid
WHERE f.relnamespace = %(schema)s AND c.relnamespace <> f.relnamespace
UNION ALL
SELECT 'index', relname, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace = %(schema)s
UNION ALL
SELECT 'trigger', tgname, concat('enabled ', tgenabled)
FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
WHERE relnamespace = %(schema)s AND (NOT tgisinternal OR tgenabled <> 'O')
UNION ALL
SELECT 'rule', rulename, '' FROM pg_rewrite JOIN pg_class c ON c.oid = ev_class
WHERE relnamespace = %(schema)s AND rulename <> '_RETURN'
UNION ALL
SELECT 'policy', polname, '' FROM pg_policy JOIN pg_class c ON c.oid = polrelid WHERE relnamespace = %(schema)s
UNION ALL
SELECT 'inheriting table', i.inhrelid::regclass::text, ''
FROM pg_inherits i JOIN pg_class c ON c.oid = inhparent WHERE relnamespace = %(schema)s AND relkind = 'r'
UNION ALL
SELECT 'function', proname, '' FROM pg_proc WHERE pronamespace = %(schema)s
UNION ALL
SELECT 'operator', oprname, '' FROM pg_operator WHERE oprnamespace = %(schema)s
UNION ALL
SELECT 'type', typname, '' FROM pg_type WHERE typnamespace = %(schema)s AND typtype <> 'c' AND typcategory <> 'A'
"""

# Functions and operators in the schema of pgvector that no extension brought and that have the name of a built-in one.
# The search path contains that schema, and PostgreSQL takes whichever matches the types better.
_SHADOWS_QUERY = """
SELECT 'function', proname FROM pg_proc p
WHERE pronamespace = %(schema)s AND EXISTS (
    SELECT FROM pg_proc b WHERE b.proname = p.proname AND b.pronamespace = 'pg_catalog'::regnamespace)
  AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
UNION
SELECT 'operator', oprname FROM pg_operator o
WHERE oprnamespace = %(schema)s AND EXISTS (
    SELECT FROM pg_operator b WHERE b.oprname = o.oprname AND b.oprnamespace = 'pg_catalog'::regnamespace)
  AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_operator'::regclass AND objid = o.oid AND deptype = 'e')
ORDER BY 1, 2
"""
# Everyone's rights to create something that our statements would find.
_OPEN_SCHEMAS_QUERY = """
SELECT nspname FROM pg_namespace WHERE oid = ANY(%(schemas)s) AND has_schema_privilege('public', oid, 'CREATE')
ORDER BY nspname
"""
_SCHEMAS_QUERY = """
SELECT (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s), n.oid, n.nspname
FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'
"""
# Indexes that grow with the data.
_OWN_INDEXES = re.compile(
    rf"CREATE INDEX (?:{VECTOR_INDEX_PREFIX}\w+ ON vectors USING hnsw \(\(v::"
    rf"|{TRIGRAM_INDEX} ON records USING gin \(lower\()"
)


COMPARISON_SECONDS = 60.0  # for which one comparison explains errors


class TableCheck:
    """Comparison on a separate connection, in a transaction that changes nothing. It works behind a pooler too."""

    def __init__(
        self, dial: Callable[[], Connection], schema: str, layout: Layout, place: str, time_limit: float
    ) -> None:
        self._dial = dial
        self._schema = schema
        self._layout = layout
        self._place = place
        self._milliseconds = max(1, round(time_limit * 1000))
        self._faults: list[TableFault] = []
        self._compared_at = -COMPARISON_SECONDS

    def find_faults(self) -> list[TableFault]:
        try:
            with self._dial() as connection, connection.transaction(force_rollback=True):
                limit = f"SET LOCAL statement_timeout = {self._milliseconds}"
                connection.execute(limit.encode(), prepare=False)
                return _find_faults(connection, self._schema, self._layout)
        except psycopg.Error as error:
            raise translate_error(error, self._place) from None

    def explain(self, error: Exception) -> Exception:
        """Return StoreDamaged if a person or a program has changed the tables, otherwise the error itself."""
        now = time.monotonic()
        if now - self._compared_at > COMPARISON_SECONDS:
            with suppress(EverkeptError, RuntimeError):
                self._faults = [fault for fault in self.find_faults() if fault.problem != "open"]
                self._compared_at = now
        if not self._faults:
            return error
        return StoreDamaged(
            f'The tables in schema "{self._schema}" of PostgreSQL at {self._place} are not as Everkept creates them: '
            f"{self._faults[0].description}.",
            hint="To see all differences, run `everkept doctor`.",
        )


def _find_faults(connection: Connection, schema: str, layout: Layout) -> list[TableFault]:
    _set_path(connection, "pg_catalog")
    oid, vector_oid, vector_schema = _fetch_all(connection, _SCHEMAS_QUERY, schema=schema)[0]
    if oid is None:
        return [TableFault("schema", schema, "missing")]
    opened = _fetch_all(connection, _OPEN_SCHEMAS_QUERY, schemas=[oid, vector_oid])
    risks = [TableFault("schema", name, "open") for (name,) in opened]
    shadows = _fetch_all(connection, _SHADOWS_QUERY, schema=vector_oid)
    if shadows:  # our statements would use them
        return [*(TableFault(kind, f"{vector_schema}.{name}", "extra") for kind, name in shadows), *risks]
    found = _read_parts(connection, oid)
    version = find_version(connection, schema) if ("column", "meta.value") in found else None
    ours = _build_parts(connection, layout, layout.version if version is None else version, vector_schema)
    return [*list_table_faults(found, ours), *risks]


def _build_parts(connection: Connection, layout: Layout, version: int, vector_schema: str) -> Mapping[_Part, str]:
    """Create our tables as temporary ones, and read them."""
    _set_path(connection, f"pg_temp, {quote_name(vector_schema)}")
    for statement in (META_TABLE, *(each for step in layout.steps[:version] for each in step)):
        connection.execute(statement.encode(), prepare=False)
    _set_path(connection, "pg_catalog")
    [(oid,)] = _fetch_all(connection, "SELECT pg_my_temp_schema()")
    return _read_parts(connection, oid)


def _read_parts(connection: Connection, oid: int) -> dict[_Part, str]:
    """Read everything in a schema, except the indexes that grow with the data."""
    [(name,)] = _fetch_all(
        connection, "SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = %(schema)s", schema=oid
    )
    prefixes = re.compile(rf"(?:{re.escape(name)}|pg_temp)\.")
    rows = [
        (*part, prefixes.sub("", definition)) for *part, definition in _fetch_all(connection, _PARTS_QUERY, schema=oid)
    ]
    return {
        (kind, name): definition
        for kind, name, definition in sorted(rows)
        if not (kind == "index" and _OWN_INDEXES.match(definition))
    }


def _set_path(connection: Connection, path: str) -> None:
    connection.execute(f"SET LOCAL search_path = {path}".encode(), prepare=False)


def _fetch_all(connection: Connection, query: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode(), values or None, prepare=False).fetchall()
