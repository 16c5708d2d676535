"""`everkept graph`: a picture of the knowledge graph for a README, an issue, or a browser without a network.

Names, types and verbs are foreign text. Each format escapes them, so that no name can add an item or a statement.
"""

import difflib
import re
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.app.graph_outline import MAX_ENTITIES, GraphOutline, read_outline, read_surroundings
from everkept.cli.completion import complete_entities
from everkept.cli.options import CountRange, add_common_options
from everkept.cli.runner import echo, print_json, read_session, require_project, run_with_app
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text, format_count, replace_controls
from everkept.errors import InvalidInput, NotFound
from everkept.graph.entities import ENTITY, find_candidates, require_unique
from everkept.tools.schema import to_json
from everkept.values import Value
from everkept.views.pages import fill_page

MAX_LABEL_CHARACTERS = 60
MAX_MERMAID_LINKS = 480  # Mermaid refuses more than 500
MAX_NEAR_NAMES = 3
MAX_COMPARED_NAMES = 5_000
MIN_LIKENESS = 0.6
# Punctuation inside a word, which no Mermaid syntax begins with.
_JOINED = re.compile(r"(?<=[^\W_])[-._/](?=[^\W_])")


class PictureLink(Value):
    source: int  # position of the entity
    verb: str
    target: int


class GraphPicture(Value):
    """Part of a graph to draw. `focus` is the position of the entity that it is about."""

    outline: GraphOutline
    focus: int | None
    is_cut: bool  # whether entities are missing

    @property
    def links(self) -> list[PictureLink]:
        verbs = self.outline.verbs
        numbers = self.outline.links
        triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
        return [PictureLink(source, verbs[verb], target) for source, target, verb in triples]


async def read_picture(store: RecordStore, entity: str | None, hops: int, limit: int) -> GraphPicture:
    """Read the graph around an entity, or the entities with the most relations. Raise NotFound or AmbiguousName."""
    if entity is None:
        outline = await read_outline(store, limit)
        return GraphPicture(outline, None, len(outline.ids) < outline.total)
    focus = (await _find_entity(store, entity)).id
    outline = await read_surroundings(store, focus, hops, limit + 1)
    is_cut = len(outline.ids) > limit
    if is_cut:
        outline = await read_surroundings(store, focus, hops, limit)
    return GraphPicture(outline, list(outline.ids).index(focus), is_cut)


async def _find_entity(store: RecordStore, name: str) -> Record:
    found = require_unique(await find_candidates(store, [name]))[name]
    if found is not None:
        return found
    near = await _find_near_names(store, name)
    listed = " or ".join(f'"{each}"' for each in near)
    hint = f"Did you mean {listed}?" if near else "Find entities with search_nodes."
    raise NotFound(ENTITY, clip_text(name, MAX_LABEL_CHARACTERS), hint=hint)


async def _find_near_names(store: RecordStore, name: str) -> list[str]:
    """Return names that contain the words, otherwise names that are spelled alike."""
    where = RecordFilter(kinds=(ENTITY,))
    matches = await store.match_text(name, where, MAX_NEAR_NAMES)
    found = await store.get([match.id for match in matches])
    if not found:
        records = await store.scan(where, limit=MAX_COMPARED_NAMES)
        by_key = {(record.name or "").casefold(): record for record in records}
        keys = difflib.get_close_matches(name.casefold(), list(by_key), n=MAX_NEAR_NAMES, cutoff=MIN_LIKENESS)
        found = [by_key[key] for key in keys]
    return [clip_text(record.name or "", MAX_LABEL_CHARACTERS) for record in found]


def draw_mermaid(picture: GraphPicture) -> tuple[str, int]:
    """Draw a Mermaid flowchart. Return it with the number of relations that did not fit."""
    outline, links = picture.outline, picture.links
    lines = ["graph LR"]
    for number, name in enumerate(outline.names):
        kind = outline.types[outline.type_of[number]]
        label = "<br/>".join(_escape_mermaid(part) for part in (name, kind) if part)
        lines.append(f'  n{number}["{label}"]')
    lines += [
        f'  n{link.source} -->|"{_escape_mermaid(link.verb)}"| n{link.target}' for link in links[:MAX_MERMAID_LINKS]
    ]
    if picture.focus is not None:
        lines.append(f"  style n{picture.focus} stroke-width:3px")
    return "\n".join(lines) + "\n", max(0, len(links) - MAX_MERMAID_LINKS)


def _escape_mermaid(text: str) -> str:
    """Write every sign that Mermaid, Markdown or HTML may interpret as a numbered character."""
    text = _clean(text)
    kept = {found.start() for found in _JOINED.finditer(text)}
    return "".join(
        sign if sign.isalnum() or sign == " " or at in kept else f"#{ord(sign)};" for at, sign in enumerate(text)
    )


def draw_dot(picture: GraphPicture) -> str:
    """Draw a directed graph for Graphviz."""
    outline = picture.outline
    lines = ["digraph everkept {", "  graph [rankdir=LR];", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    lines.append('  edge [fontname="sans-serif", fontsize=10];')
    for number, name in enumerate(outline.names):
        kind = outline.types[outline.type_of[number]]
        label = "\\n".join(_escape_dot(part) for part in (name, kind) if part)
        mark = ", penwidth=3" if number == picture.focus else ""
        lines.append(f'  n{number} [label="{label}"{mark}];')
    lines += [f'  n{link.source} -> n{link.target} [label="{_escape_dot(link.verb)}"];' for link in picture.links]
    return "\n".join([*lines, "}"]) + "\n"


def _escape_dot(text: str) -> str:
    """Escape the quote, and the signs that begin an escape or an entity of HTML."""
    return _clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


def draw_html(picture: GraphPicture) -> str:
    """Draw a page that needs neither a network nor another file."""
    title = "Knowledge graph" if picture.focus is None else picture.outline.names[picture.focus]
    return fill_page("picture", {"title": title, "focus": picture.focus, "outline": to_json(picture.outline)})


def _clean(text: str) -> str:
    """Return a short text in one line, with marks for characters that cannot be seen or that turn the text."""
    return clip_text(replace_controls(" ".join(text.split())), MAX_LABEL_CHARACTERS)


def describe_picture(picture: GraphPicture) -> dict[str, Any]:
    """Return the picture as data: entities and relations by name."""
    outline = picture.outline
    entities = [
        {"id": outline.ids[n], "name": name, "entity_type": outline.types[outline.type_of[n]]}
        for n, name in enumerate(outline.names)
    ]
    relations = [
        {"from": outline.names[link.source], "to": outline.names[link.target], "relation_type": link.verb}
        for link in picture.links
    ]
    return {"entities": entities, "relations": relations, "total_entities": outline.total, "cut": picture.is_cut}


MAX_HOPS = 4
DEFAULT_LIMITS = {"mermaid": 100, "dot": 300, "html": 300}  # entities that such a picture can show


@click.command()
@add_common_options
@click.argument("entity", required=False, shell_complete=complete_entities)
@click.option(
    "--format", "form", type=click.Choice(list(DEFAULT_LIMITS)), default="mermaid", help="Format of the picture."
)
@click.option("--hops", type=CountRange(1, MAX_HOPS), default=2, show_default=True, help="With ENTITY: steps to show.")
@click.option(
    "--limit", type=CountRange(1, MAX_ENTITIES), help="Entities to show. Default: 100 for mermaid, otherwise 300."
)
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="File to write. Default: stdout.")
def graph(
    as_json: bool, entity: str | None, form: str, hops: int, limit: int | None, output: Path | None, **flags: Any
) -> None:
    """Draw the knowledge graph, or the part around ENTITY.

    `mermaid` is for Markdown files and issues, `dot` for Graphviz, and `html` for a browser without a network. ENTITY
    is a name, `name (type)` or an id. Without ENTITY, the entities with the most relations come first.
    """

    async def work(app: App) -> GraphPicture:
        await require_project(app, flags)
        store = await app.project_rule.open_to_read(ToolCall(await read_session(app), "graph"), None)
        return await read_picture(store, entity, hops, limit or DEFAULT_LIMITS[form])

    picture = run_with_app(work, **flags)
    if as_json:
        print_json(describe_picture(picture))
        return
    drawn, missing = _draw(picture, form)
    if output is None:
        click.echo(drawn, nl=False)
    else:
        _write(output, drawn)
        counts = f"{format_count(len(picture.outline.ids), 'entity', 'entities')}"
        echo(f"Drew {counts} and {format_count(len(picture.links) - missing, 'relation')} to {output}.")
    _print_limits(picture, missing)


def _draw(picture: GraphPicture, form: str) -> tuple[str, int]:
    """Return the picture with the number of relations that did not fit."""
    if form == "mermaid":
        return draw_mermaid(picture)
    return (draw_dot(picture) if form == "dot" else draw_html(picture)), 0


def _write(output: Path, drawn: str) -> None:
    try:
        output.write_text(drawn, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InvalidInput(
            f"Cannot write {output}: {error.strerror}.", hint="Choose another file with --output.", argument="output"
        ) from error


def _print_limits(picture: GraphPicture, missing: int) -> None:
    outline = picture.outline
    if not outline.ids:
        echo("The knowledge graph has no entities yet.", err=True)
    if picture.is_cut:
        shown = format_count(len(outline.ids), "entity", "entities")
        which = "with the most relations" if picture.focus is None else "nearest to it"
        echo(f"The picture shows {shown} {which}, of {outline.total:,}. To show more, pass --limit.", err=True)
    if missing:
        echo(f"{format_count(missing, 'relation')} omitted, because Mermaid refuses larger pictures.", err=True)
