"""Comparison of the tables of a database with those that Everkept creates, by what the server says of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everkept.core.answers import TableFault, list_table_faults
from everkept.engines.stored_text import report_damage
from everkept.engines.surreal.connection import Connection
from everkept.values import Value

_Parts = dict[tuple[str, str], str]

_SINGULARS = {"accesses": "access"}
# Other clauses of a field or table, which Everkept never uses. Some run when a row is written or read.
_CLAUSE = re.compile(r"\b(VALUE|ASSERT|DEFAULT|READONLY|FLEXIBLE|COMPUTED|REFERENCE|CHANGEFEED|DROP|AS)\b")
_NEXT_CLAUSE = re.compile(r" (?=[A-Z])")
_INDEX = re.compile(r"DEFINE INDEX \S+ ON (?:TABLE )?(\S+) (?:FIELDS|COLUMNS) (.+?)(?= [A-Z]|$)( UNIQUE)?")


class DatabaseLayout(Value):
    """Tables of a database with the types of their fields, the fields of indexes by table, and the analyzers."""

    tables: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, Sequence[str]]
    unique: Sequence[str] = ()  # tables whose indexes are unique
    analyzers: Sequence[str] = ()


async def find_table_faults(connection: Connection, database: str, layout: DatabaseLayout) -> list[TableFault]:
    """Return what is not as Everkept creates it. The name of each part begins with the database."""
    [whole] = await connection.run(database, "INFO FOR DB")
    known = sorted(set(_read_names(whole, "tables")) & layout.tables.keys())
    answers = await connection.run(database, "; ".join(f"INFO FOR TABLE {name}" for name in known)) if known else []
    found = _collect_found(whole, dict(zip(known, answers, strict=True)))
    faults = list_table_faults(found, _collect_ours(layout))
    return [fault._replace(name=f"{database}.{fault.name}") for fault in faults]


@report_damage("SurrealDB")
def _read_names(answer: Any, kind: str) -> list[str]:
    return list(answer[kind])


@report_damage("SurrealDB")
def _collect_found(whole: Mapping[str, Any], tables: Mapping[str, Any]) -> _Parts:
    found: _Parts = {}
    for kinds, parts in whole.items():
        for name, definition in parts.items():
            kind = str(_SINGULARS.get(kinds) or kinds.removesuffix("s"))
            found[kind, name] = "" if kind == "analyzer" else _find_clauses(definition)
    for table, parts in tables.items():
        found |= {("column", f"{table}.{name}"): text for name, text in _list_fields(parts["fields"])}
        found |= {("index", name): _read_index(text) for name, text in parts["indexes"].items()}
        found |= {("event", f"{table}.{name}"): "" for name in parts["events"]}
        found |= {("view", name): "" for name in parts["tables"]}
    return found


def _collect_ours(layout: DatabaseLayout) -> _Parts:
    return {
        **{("analyzer", name): "" for name in layout.analyzers},
        **{("table", name): "" for name in layout.tables},
        **{
            ("column", f"{table}.{name}"): _read_type(f" TYPE {kind}")
            for table, fields in layout.tables.items()
            for name, kind in fields.items()
        },
        **{
            ("index", f"{table}_{name}"): f"{table}.{name}{' UNIQUE' * (table in layout.unique)}"
            for table, names in layout.indexes.items()
            for name in names
        },
    }


def _list_fields(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the fields with their types, without those of the elements of an array. Version 2 quotes some names."""
    for quoted, definition in fields.items():
        name = quoted.strip("`⟨⟩")
        if name.partition("[")[0].partition(".")[0] == name:
            yield name, _read_type(definition) + _find_clauses(definition)


def _read_type(definition: str) -> str:
    """Return the type of a field in one spelling: versions 2 and 3 have another one for what may be missing."""
    kind = _NEXT_CLAUSE.split(definition.partition(" TYPE ")[2], maxsplit=1)[0]
    if kind.startswith("option<") and kind.endswith(">"):
        return f"{kind.removeprefix('option<')[:-1]}?"
    return f"{kind.removeprefix('none | ')}?" if kind.startswith("none | ") else kind


def _read_index(definition: str) -> str:
    found = _INDEX.match(definition)
    return f"{found[1]}.{found[2]}{found[3] or ''}" if found else definition


def _find_clauses(definition: str) -> str:
    return " ".join(_CLAUSE.findall(definition))
