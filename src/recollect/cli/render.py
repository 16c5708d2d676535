"""Results for people: tables where there are rows, sentences where there is one."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect.tools.tool import Result

Row = Mapping[str, Any]

# Columns shown for each kind of row; ids and times are left to --json.
COLUMNS: dict[str, tuple[str, ...]] = {
    "projects": ("name", "status", "description", "updated_at"),
    "entities": ("name", "entity_type", "observations", "relations"),
    "observations": ("content", "created_at"),
    "relations": ("from", "relation_type", "to"),
}

LONG_COLUMNS = frozenset({"name", "description", "observations", "relations", "content", "summary"})


def console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def render(result: Result) -> None:
    out = console()
    lists: dict[str, Sequence[Row]] = {
        key: value for key, value in result.structured.items() if isinstance(value, list)
    }
    if "message" in result.structured:
        out.print(result.text, markup=False)
    elif not lists:
        out.print(pairs(result.structured))
    else:
        for key, rows in lists.items():
            out.print(table_of(key, rows), markup=False)
    if cursor := result.structured.get("next_cursor"):
        out.print(f"There is more: --cursor {cursor}", style="dim", markup=False)


def table_of(key: str, rows: Sequence[Row]) -> Table | str:
    if not rows:
        return f"No {key}."
    columns = COLUMNS.get(key) or tuple(rows[0])
    columns = tuple(c for c in columns if any(row.get(c) not in (None, [], "") for row in rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        is_long = column in LONG_COLUMNS
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=not is_long)
    for row in rows:
        table.add_row(*(_cell(row, column) for column in columns))
    return table


def pairs(values: Row) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for key, value in values.items():
        table.add_row(key.replace("_", " "), _plain(value))
    return table


def _cell(row: Row, column: str) -> Text:
    value = row.get(column)
    if column == "observations" and isinstance(value, list):
        return _plain("\n".join(f"· {item['content']}" for item in cast(list[Row], value)))
    if column == "relations" and isinstance(value, list):
        return _plain("\n".join(_relation(row, item) for item in cast(list[Row], value)))
    return _plain(value)


def _relation(row: Row, relation: Row) -> str:
    if relation["from_entity"] == row["id"]:
        return f"{relation['relation_type']} → {relation['to']}"
    return f"← {relation['relation_type']} {relation['from']}"


def _plain(value: Any) -> Text:
    """Stored text is data: what looks like markup in it is shown, not obeyed."""
    return Text("" if value is None else str(value))
