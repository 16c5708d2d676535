"""Results for people: tables where there are rows, sentences where there is one."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everkept.cli import bank
from everkept.cli.recalled import print_memories, print_pairs
from everkept.tools.tool import Result

Row = Mapping[str, Any]

# Columns shown for each kind of row; ids and times are left to --json.
COLUMNS: dict[str, tuple[str, ...]] = {
    "projects": ("name", "status", "description", "updated_at"),
    "entities": (
        "name",
        "entity_type",
        "entityType",
        "type",
        "observations",
        "relations",
        "relationships",
        "memory_count",
    ),
    "observations": ("entityName", "content", "text", "created_at"),
    "relations": ("from", "relation_type", "relationType", "to"),
    "stores": ("id", "path", "kind", "isActive", "available", "fileCount"),
}

# Rather wrapped than cut: an id that lacks its end is of no use.
LONG_COLUMNS = frozenset(
    {
        "id",
        "name",
        "description",
        "observations",
        "relations",
        "relationships",
        "content",
        "text",
        "path",
        "summary",
        "pattern",
    }
)


# How an answer came about; beside its rows that is left to --json.
BOOKKEEPING = frozenset({"success", "matched", "total_matched", "strategy_used", "query_time_ms"})


def console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def render(result: Result) -> None:
    """The sentence or the facts, then every list, then what the caller should know."""
    out = console()
    facts = dict(result.structured)
    warnings: Sequence[Row] = facts.pop("warnings", [])
    cursor = facts.pop("next_cursor", None)
    if result.sentence:
        out.print(result.sentence, markup=False)
    elif not bank.printed(out, facts):
        _print_facts(out, facts)
        for key, value in facts.items():
            if isinstance(value, list):
                _print_list(out, key, cast(Sequence[Any], value))
    for warning in warnings:
        out.print(Text(str(warning["message"]), style="yellow"))
    if cursor:
        out.print(f"There is more: --cursor {cursor}", style="dim", markup=False)


def _print_facts(out: Console, facts: Row) -> None:
    """Single values together, and each group of values under its name; the lists come after."""
    has_rows = any(isinstance(value, list) for value in facts.values())
    single = {
        key: value
        for key, value in facts.items()
        if not isinstance(value, list | dict) and not (has_rows and key in BOOKKEEPING)
    }
    grouped = {k: cast(Row, v) for k, v in facts.items() if isinstance(v, dict)}
    if single:
        out.print(pairs(single))
    for name, group in grouped.items():
        out.print(Text(bank.words(name).capitalize(), style="bold"))
        out.print(pairs(_flat(group)))


def _print_list(out: Console, key: str, items: Sequence[Any]) -> None:
    if key == "memories":
        print_memories(out, items)
    elif key == "similar":
        out.print(Text("Say nearly the same" if items else "", style="bold"))
        print_pairs(out, items)
    elif items and not isinstance(items[0], dict):
        out.print(Text(f"{bank.words(key)}: {bank.plain(items)}"))
    else:
        out.print(table_of(bank.words(key), items), markup=False)


def _flat(group: Row) -> Row:
    """Nested values on one line each."""
    return {
        key: _joined(cast(Row, value)) if isinstance(value, dict) else value
        for key, value in group.items()
    }


def _joined(values: Row) -> str:
    if all(isinstance(value, int | float) for value in values.values()):
        return ", ".join(f"{name} {bank.plain(count)}" for name, count in values.items())
    return "; ".join(f"{name}: {bank.plain(value)}" for name, value in values.items())


def table_of(key: str, rows: Sequence[Row]) -> Table | str:
    if not rows:
        return f"No {key}."
    columns = COLUMNS.get(key) or tuple(rows[0])
    columns = tuple(c for c in columns if any(row.get(c) not in (None, [], "") for row in rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        is_long = column in LONG_COLUMNS
        table.add_column(bank.words(column), overflow="fold", no_wrap=not is_long)
    for row in rows:
        table.add_row(*(_cell(row, column) for column in columns))
    return table


def pairs(values: Row) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for key, value in values.items():
        table.add_row(bank.words(key), _plain(value))
    return table


def _cell(row: Row, column: str) -> Text:
    value = row.get(column)
    if column == "observations" and isinstance(value, list):
        texts = [item.get("content") or item["text"] for item in cast(list[Row], value)]
        return _plain("\n".join(f"· {text}" for text in texts))
    if column == "relations" and isinstance(value, list):
        return _plain("\n".join(_relation(row, item) for item in cast(list[Row], value)))
    if column == "relationships" and isinstance(value, list):
        return _plain("\n".join(_relationship(item) for item in cast(list[Row], value)))
    return _plain(value)


def _relationship(item: Row) -> str:
    if item["direction"] == "outgoing":
        return f"{item['type']} → {item['target']}"
    return f"← {item['type']} {item['target']}"


def _relation(row: Row, relation: Row) -> str:
    if relation["from_entity"] == row["id"]:
        return f"{relation['relation_type']} → {relation['to']}"
    return f"← {relation['relation_type']} {relation['from']}"


def _plain(value: Any) -> Text:
    """Stored text is data: what looks like markup in it is shown, not obeyed."""
    return Text(bank.plain(value))
