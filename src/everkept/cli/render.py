"""Results for people: tables, memories with their reasons, files as text, small charts."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from everkept.cli.runner import replace_controls, to_command_words
from everkept.core.short_ids import shorten_ids
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_ago, format_local, parse_time, read_clock
from everkept.families.memories.memory_identity import MEMORY_PREFIX
from everkept.language.plain_text import to_plain_text
from everkept.language.telling_words import list_stems
from everkept.retrieval.excerpts import StemSearch, select_excerpt
from everkept.tools.tool import ToolResult

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = " .:#"  # for terminals with few characters
BAR_WIDTH = 2  # of a bar


def draw_bars(values: Sequence[int], height: int, *, plain: bool = False) -> list[str]:
    """Draw lines from top to bottom. The largest value is as high as the chart, and any value above 0 is visible."""
    signs = PLAIN_BLOCKS if plain else BLOCKS
    steps = len(signs) - 1
    most = max(values, default=0)
    levels = [max(round(value / most * height * steps), 1) if value > 0 else 0 for value in values]
    return [
        " ".join(signs[min(max(level - row * steps, 0), steps)] * BAR_WIDTH for level in levels)
        for row in reversed(range(height))
    ]


Row = Mapping[str, Any]

MAX_SHOWN_CHARACTERS = 1_000  # of a memory
_INDENT = "      "
_QUOTE = _INDENT + "│ "  # so that no line of a memory looks like one of ours
_WORD = re.compile(r"\w+(?:[-.'_]\w+)*")
MIN_TEXT_WIDTH = 20
MIN_SCORE_SHARE = 0.005  # of a score; smaller parts are not shown


def print_memories(out: Console, memories: Sequence[Row], query: str = "") -> None:
    if not memories:
        out.print("No memories.")
    short = shorten_ids([each for memory in memories for each in _list_ids(memory)], MEMORY_PREFIX)
    for memory in memories:
        _print_memory(out, memory, short, query)


def print_pairs(out: Console, similar: Sequence[Row]) -> None:
    """Print pairs of memories that say nearly the same."""
    short = shorten_ids([pair[side]["id"] for pair in similar for side in ("first", "second")], MEMORY_PREFIX)
    for pair in similar:
        print_item(out, " and ".join(short[pair[side]["id"]] for side in ("first", "second")), f"{pair['score']:.2f}  ")
        print_details(out, pair["first"]["content"])
        print_details(out, pair["second"]["content"])


def print_item(out: Console, text: Text | str, head: Text | str = "") -> None:
    """Print a text after its head. On a terminal, it wraps between words; a pipe gets whole lines."""
    _print_lines(out, text, Text(head, style="bold green") if isinstance(head, str) else head)


def print_details(out: Console, text: Text | str, style: str = "dim") -> None:
    """Print a text about the item before it."""
    _print_lines(out, Text(text, style=style) if isinstance(text, str) else text, Text(_INDENT))


def _print_lines(out: Console, text: Text | str, head: Text) -> None:
    whole = Text(text) if isinstance(text, str) else text
    indent = " " * (len(head) or len(_INDENT))
    for number, line in enumerate(whole.split(allow_blank=True)):
        before = Text(_QUOTE) if number else head
        width = max(out.width - max(len(before), len(indent)), MIN_TEXT_WIDTH)
        for part in line.wrap(out, width) if out.is_terminal else [line]:
            part.rstrip()
            out.print(before + part, soft_wrap=True)
            before = Text(_QUOTE if number else indent)


def _print_memory(out: Console, memory: Row, short: Mapping[str, str], query: str) -> None:
    score = memory.get("relevance_score")
    content = highlight(to_plain_text(_shorten_content(str(memory["content"]))), query)
    print_item(out, content, f"{score:.2f}  " if score is not None else "")
    print_details(out, " · ".join(_list_facts(memory, short)))
    if reasons := _format_reasons(memory.get("why") or {}):
        print_details(out, f"why: {reasons}", "cyan")


def highlight(text: str, query: str) -> Text:
    """Return the text with the words of the query marked. Markup in it stays text."""
    shown = Text(text)
    asked = StemSearch(list_stems(query))
    for word in _WORD.finditer(text) if asked.stems else ():
        if asked.find_stems(word[0]):
            shown.stylize("bold yellow", *word.span())
    return shown


def _shorten_content(content: str) -> str:
    if len(content) <= MAX_SHOWN_CHARACTERS:
        return content
    return f"{content[:MAX_SHOWN_CHARACTERS].rstrip()}… (cut; to see all, pass --json)"


def _list_ids(memory: Row) -> list[str]:
    return [str(memory[key]) for key in ("id", "superseded_by") if memory.get(key)]


def _list_facts(memory: Row, short: Mapping[str, str]) -> list[str]:
    marks = [
        "pinned" if memory.get("pinned") else "",
        "automatic" if memory.get("automatic") else "",
        f"superseded by {short[memory['superseded_by']]}" if memory.get("superseded_by") else "",
        "consolidated" if memory.get("consolidated") else "",
        "forgotten" if memory.get("forgotten") else "",
    ]
    when = memory.get("occurred_at") or memory["created_at"]
    tags: Sequence[str] = memory.get("tags") or []
    facts = [
        str(memory["type"]),
        str(memory["scope"]),
        str(memory.get("project") or ""),
        str(memory.get("author") or ""),
        format_ago(parse_time(when), read_clock()),
        " ".join(f"#{tag}" for tag in tags),
        *marks,
        short[str(memory["id"])],
    ]
    return [fact for fact in facts if fact]


def _format_reasons(why: Mapping[str, float]) -> str:
    shown = [(part, share) for part, share in why.items() if abs(share) >= MIN_SCORE_SHARE]
    return ", ".join(f"{part} {share:.2f}" for part, share in shown)


_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def print_special(out: Console, facts: Row) -> bool:
    """Print an answer that has its own form. Return whether it does."""
    show = next((show for keys, show in _FORMS if keys <= facts.keys()), None)
    if show is None:
        return False
    show(out, facts)
    return True


def format_label(name: str) -> str:
    """Return a name of the wire for people: `currentContext` as `current context`."""
    return _CAMEL_CASE.sub(" ", name).replace("_", " ").lower()


def format_value(value: Any) -> str:
    """Return a value for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(format_value(item) for item in cast(list[Any], value))
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _print_file(out: Console, facts: Row) -> None:
    content = str(facts["content"])
    out.file.write(replace_controls(content) if out.file.isatty() else content)


def _print_matches(out: Console, facts: Row) -> None:
    lines: Sequence[Row] = facts["results"]
    sections: Sequence[Row] = facts["sections"]
    for line in lines:
        out.print(Text(f"{line['file']}:{line['line']}: ", style="cyan") + Text(line["content"]))
    if sections:
        out.print(Text("\nMatching sections" if lines else "Matching sections", style="bold"))
    for section in sections:
        shown = select_excerpt(section["text"], facts["query"], 160)
        place = f"{section['file']}:{section['line'] + shown.skipped}: "
        heading = section.get("heading") or ""
        out.print(Text(place, style="cyan") + Text(f"{heading}  {section['score']:.2f}"))
        out.print(Text(f"  {clip_text(shown.text, 170)}", style="dim"))
    if not lines and not sections:
        out.print("Nothing found.")
    _print_notes(out, facts["metadata"])


def _print_digest(out: Console, facts: Row) -> None:
    _print_outline(out, facts["digest"])
    _print_notes(out, facts["metadata"])


def _print_bundle(out: Console, facts: Row) -> None:
    files: Mapping[str, Row] = facts.get("bundle") or facts["results"]
    for name, file in files.items():
        out.print(Text(f"==> {name} <==", style="bold"))
        out.file.write(f"{file.get('error') or file.get('content', '')}\n")
    _print_notes(out, facts["metadata"])


def _print_backups(out: Console, facts: Row) -> None:
    """Print one line for each, never cut, because people copy the id."""
    backups: Sequence[Row] = facts["backups"]
    for backup in backups:
        count = backup.get("fileCount")
        known = [format_count(count, "file") if count is not None else "", backup["verified"]]
        if backup.get("otherBank"):
            known.append(f"of {backup['bank']}")
        line = Text(backup["id"], style="cyan") + Text("  " + "  ".join(filter(None, known)))
        out.print(line, soft_wrap=True)
        for problem in backup.get("problems") or ():
            out.print(Text(f"  {problem}", style="yellow"), soft_wrap=True)
    if not backups:
        out.print("No backups.")


def _print_nodes(out: Console, facts: Row) -> None:
    """Print each entity with its data, then what belongs to no shown entity."""
    entities: Sequence[Row] = facts["entities"]
    names = {entity["id"]: str(entity["name"]) for entity in entities}
    observations: list[Row] = list(facts["observations"])
    short = shorten_ids([*names, *(each["id"] for each in observations if "id" in each)])
    relations = [_name_relation(relation, names) for relation in facts["relations"]]
    for entity in entities:
        head = Text(f"{entity['name']} ({entity['entityType']})", style="bold")
        out.print(head + Text(f"  {short[entity['id']]}", style="dim"), soft_wrap=True)
        if entity.get("attrs"):
            pairs = cast(Row, entity["attrs"]).items()
            _print_line(out, ", ".join(f"{name}: {format_value(value)}" for name, value in pairs))
        own = [one for one in observations if one["entityId"] == entity["id"]]
        listed = cast(Sequence[Row], entity.get("observations") or own)
        for observation in listed:
            _print_line(out, f"· {observation['text']}", short.get(observation.get("id") or ""))
        for _, verb, target in (r for k, r in relations if k in (entity["id"], entity["name"])):
            _print_line(out, f"{verb} → {target}")
    shown = {*names, *names.values()}
    for observation in (one for one in observations if one["entityId"] not in names):
        _print_line(out, f"{observation['entityName']}: {observation['text']}", short.get(observation.get("id") or ""))
    for source, verb, target in (r for k, r in relations if k not in shown):
        _print_line(out, f"{source} {verb} → {target}")
    if not entities and not observations:
        out.print("Nothing found.")


def _name_relation(relation: Row, names: Mapping[str, str]) -> tuple[str, tuple[str, str, str]]:
    """Return a relation with the names of its verb and ends, if they are known."""
    verb = str(relation["relationType"])
    if "fromId" not in relation:
        return relation["from"], (relation["from"], verb, relation["to"])
    source, target = str(relation["fromId"]), str(relation["toId"])
    return source, (names.get(source, source), verb, names.get(target, target))


def _print_line(out: Console, text: str, mark: str | None = None) -> None:
    marked = Text(f"  {mark}", style="dim") if mark else Text()
    out.print(Text(f"  {text}") + marked, soft_wrap=True)


def _print_outline(out: Console, group: Row) -> None:
    for name, value in group.items():
        if isinstance(value, dict):
            _print_outline(out, cast(Row, value))
        elif value:
            out.print(Text(format_label(name).capitalize(), style="bold"))
            for item in cast(Sequence[Any], value if isinstance(value, list) else [value]):
                out.print(Text(f"  {_format_item(item)}"))


def _format_item(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item).replace("\n", "\n  ")
    entry = cast(Row, item)
    named = "  ".join(str(entry[key]) for key in ("date", "title") if entry.get(key))
    rest = [str(v) for k, v in entry.items() if k not in ("date", "title") and v]
    return f"{named}: {' '.join(rest)}" if named else " ".join(rest)


def _print_notes(out: Console, metadata: Row) -> None:
    notes: Sequence[str] = metadata.get("warnings") or ()
    for note in notes:
        out.print(Text(str(note), style="yellow"))


_FORMS: Sequence[tuple[set[str], Callable[[Console, Row], None]]] = (
    ({"content", "filename"}, _print_file),
    ({"results", "sections", "metadata"}, _print_matches),
    ({"digest", "metadata"}, _print_digest),
    ({"bundle", "metadata"}, _print_bundle),
    ({"backups", "metadata"}, _print_backups),
    ({"entities", "observations", "relations"}, _print_nodes),
)


# Columns for each kind of row. Ids and times are only in --json.
COLUMNS: dict[str, tuple[str, ...]] = {
    "projects": ("name", "status", "description", "updated_at"),
    "trash": ("name", "deleted_at", "until"),
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

TRASH = "trash"
TIME_COLUMNS = frozenset({"created_at", "updated_at", "deleted_at", "until"})
_COLUMN_GAP = 3
LONG_TEXT = 40  # a text of this width needs a readable column
MAX_UNCUT_WORD = 36  # the width of an id


# How an answer was computed, which is only in --json.
HIDDEN_FACTS = frozenset({"success", "matched", "total_matched", "strategy_used", "query_time_ms"})


_COMMAND = re.compile(r"`everkept [^`\n]+`")
_KEPT_SPACE = "\ufdd0"  # noncharacter in place of a space at which no line ends


def keep_commands_whole(text: Text) -> Text:
    """Return a text whose commands do not wrap, because people copy them."""
    kept = text.copy()
    kept.plain = _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT_SPACE), text.plain)
    return kept


class _SafeRenderable:
    """A renderable whose text reaches the terminal without control characters, and with whole commands."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = keep_commands_whole(self._inner) if isinstance(self._inner, Text) else self._inner
        for segment in console.render(inner, options):
            text = segment.text if segment.control else replace_controls(segment.text).replace(_KEPT_SPACE, " ")
            yield segment._replace(text=text)


class _SafeText(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_SafeRenderable(each) for each in renderables]


def build_console() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    if console.no_color:  # no bold text either
        console = Console(highlight=False, soft_wrap=False, color_system=None)
    console.push_render_hook(_SafeText())
    return console


def render(result: ToolResult, query: str = "") -> None:
    """Print the sentence or the facts, then every list, then the notes."""
    out = build_console()
    facts = dict(result.facts)
    warnings: Sequence[Row] = facts.pop("warnings", [])
    cursor = facts.pop("next_cursor", None)
    if result.sentence:
        out.print(result.sentence, markup=False)
    elif not print_special(out, facts):
        _print_facts(out, facts)
        for key, value in facts.items():
            if isinstance(value, list):
                _print_list(out, key, cast(Sequence[Any], value), query)
    for warning in warnings:
        out.print(Text(to_command_words(str(warning["message"])), style="yellow"))
    if cursor:
        out.print(f"For more, pass --cursor {cursor}", style="dim", markup=False)


def _print_facts(out: Console, facts: Row) -> None:
    """Print single values together, and each group of values under its name. The lists follow."""
    has_rows = any(isinstance(value, list) for value in facts.values())
    single = {
        key: value
        for key, value in facts.items()
        if not isinstance(value, list | dict) and not (has_rows and (key in HIDDEN_FACTS or _is_zero(value)))
    }
    grouped = {k: cast(Row, v) for k, v in facts.items() if isinstance(v, dict) and not (has_rows and _is_zero(v))}
    if single:
        out.print(build_pairs(single))
    for name, group in grouped.items():
        out.print(Text(format_label(name).capitalize(), style="bold"))
        out.print(build_pairs(_flatten(group)))


def _is_zero(value: Any) -> bool:
    """Return whether it is a count of nothing, or a group of such counts."""
    if isinstance(value, dict):
        return all(map(_is_zero, cast(Row, value).values()))
    return type(value) is not bool and value == 0


def _print_list(out: Console, key: str, items: Sequence[Any], query: str) -> None:
    if key == "memories":
        print_memories(out, items, query)
    elif key == "similar":
        out.print(Text("Similar memories" if items else "", style="bold"))
        print_pairs(out, items)
    elif items and not isinstance(items[0], dict):
        out.print(Text(f"{format_label(key)}: {format_value(items)}"))
    elif items or key != TRASH:
        if key == TRASH:
            out.print(Text("In the trash", style="bold"))
        out.print(build_table(format_label(key), items), markup=False)


def _flatten(group: Row) -> Row:
    """Put nested values on one line each."""
    return {key: _join_values(cast(Row, value)) if isinstance(value, dict) else value for key, value in group.items()}


def _join_values(values: Row) -> str:
    if all(isinstance(value, int | float) for value in values.values()):
        return ", ".join(f"{name} {format_value(count)}" for name, count in values.items())
    return "; ".join(f"{name}: {format_value(value)}" for name, value in values.items())


class TableView:
    """Table for any width: columns wrap between words, or each row becomes a list."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Text]],
        *,
        numbers: Collection[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Create the table. `numbers` align on the right; a narrow console drops the `spare` columns."""
        self._columns = columns
        self._rows = rows
        self._numbers = numbers
        self._spare = spare

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._choose_widths(options.max_width)
        if widths is None and self._spare:
            yield self._drop(self._spare[-1])
            return
        if widths is None:
            yield from self._list_rows()
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, width in zip(self._columns, widths, strict=True):
            side = "right" if column in self._numbers else "left"
            table.add_column(format_label(column), overflow="fold", width=width, justify=side)
        for row in self._rows:
            table.add_row(*row)
        yield table

    def _choose_widths(self, most: int) -> list[int] | None:
        """Return the width of each column, or None if words would be cut or long texts would be narrow."""
        cells = [[Text(format_label(name)), *cells] for name, *cells in zip(self._columns, *self._rows, strict=True)]
        widths = [max(cell_len(line.plain) for cell in column for line in cell.split() or [cell]) for column in cells]
        least = [
            max(MIN_TEXT_WIDTH if width > LONG_TEXT else 0, *(_measure_words(cell.plain) for cell in column))
            for column, width in zip(cells, widths, strict=True)
        ]
        excess = sum(widths) + _COLUMN_GAP * (len(widths) - 1) + 2 - most
        if sum(widths) - sum(least) < excess:
            return None
        while excess > 0:
            widest = max((at for at in range(len(widths)) if widths[at] > least[at]), key=lambda at: widths[at])
            widths[widest] -= 1
            excess -= 1
        return widths

    def _drop(self, name: str) -> "TableView":
        at = self._columns.index(name)
        rows = [[*row[:at], *row[at + 1 :]] for row in self._rows]
        columns = [*self._columns[:at], *self._columns[at + 1 :]]
        return TableView(columns, rows, numbers=self._numbers, spare=self._spare[:-1])

    def _list_rows(self) -> Iterator[ConsoleRenderable]:
        for row in self._rows:
            head, *details = zip(self._columns, row, strict=True)
            yield Text(head[1].plain, style="bold", overflow="fold")
            for name, cell in details:
                if cell.plain:
                    line = Text(f"{format_label(name)}: ", style="dim") + Text(cell.plain, style="default")
                    yield Padding(line, (0, 0, 0, 2), expand=False)


def _measure_words(text: str) -> int:
    """Return the width of the longest word. A longer path or address may be cut."""
    widths = [cell_len(word) for word in text.split()]
    return max((width if width <= MAX_UNCUT_WORD else MIN_TEXT_WIDTH for width in widths), default=0)


def build_table(key: str, rows: Sequence[Row], spare: Sequence[str] = ()) -> TableView | str:
    if not rows:
        return f"No {key}."
    columns = COLUMNS.get(key) or tuple(rows[0])
    columns = tuple(c for c in columns if any(row.get(c) not in (None, [], "") for row in rows))
    cells = [[_build_cell(row, column) for column in columns] for row in rows]
    return TableView(columns, cells, spare=[column for column in spare if column in columns])


def build_pairs(values: Row) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for key, value in values.items():
        if value not in (None, ""):
            table.add_row(format_label(key), _build_cell(values, key))
    return table


def _build_cell(row: Row, column: str) -> Text:
    value = row.get(column)
    if column == "observations" and isinstance(value, list):
        texts = [item.get("content") or item["text"] for item in cast(list[Row], value)]
        return _as_text("\n".join(f"· {text}" for text in texts))
    if column == "relations" and isinstance(value, list):
        return _as_text("\n".join(_format_relation(row, item) for item in cast(list[Row], value)))
    if column == "relationships" and isinstance(value, list):
        return _as_text("\n".join(_format_relationship(item) for item in cast(list[Row], value)))
    return _as_text(format_local(parse_time(value)) if column in TIME_COLUMNS and value else value)


def _format_relationship(item: Row) -> str:
    if item["direction"] == "outgoing":
        return f"{item['type']} → {item['target']}"
    return f"← {item['type']} {item['target']}"


def _format_relation(row: Row, relation: Row) -> str:
    if relation["from_entity"] == row["id"]:
        return f"{relation['relation_type']} → {relation['to']}"
    return f"← {relation['relation_type']} {relation['from']}"


def _as_text(value: Any) -> Text:
    """Show markup in stored text instead of applying it."""
    return Text(format_value(value))
