"""`everkept graph`: a picture of the knowledge graph for a README, an issue, or a browser without a network."""

from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.app.graph_outline import MAX_ENTITIES
from everkept.app.graph_picture import GraphPicture, describe_picture, draw_dot, draw_html, draw_mermaid, read_picture
from everkept.cli.completion import complete_entities
from everkept.cli.options import CountRange, add_common_options
from everkept.cli.runner import echo, print_json, read_session, require_project, run_with_app
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.errors import InvalidInput

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
