"""`everkept demo`: store and recall at work, on a folder that is thrown away."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.options import common
from everkept.cli.render import console, render
from everkept.cli.runner import print_json, run_with_app
from everkept.core.sessions import Session

PATIENCE = 10.0  # seconds for the model to load; nobody else embeds what the demo stores

STEPS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("A project keeps its memory apart from others.", "create_project", {"name": "shop"}),
    (
        "The assistant learns something, and keeps it.",
        "store_memory",
        {
            "content": "We chose PostgreSQL 17 for the order data because of its row locks.",
            "type": "semantic",
            "scope": "project",
            "tags": ["decision"],
            "related_entities": [
                {"name": "Orders DB", "type": "database", "relationship": "describes"}
            ],
        },
    ),
    (
        "A habit of the user is good for every project.",
        "store_memory",
        {
            "content": "Write commit messages in the imperative mood.",
            "type": "procedural",
            "scope": "user",
        },
    ),
    (
        "A key that slips in does not stay.",
        "store_memory",
        {
            "content": "Staging deploys with token ghp_" + "Ab3" * 12 + " from the build machine.",
            "type": "procedural",
            "scope": "project",
        },
    ),
    (
        "Next week, in another window, in other words: what keeps the purchases?",
        "recall_memories",
        {"query": "which database keeps the purchases?", "limit": 2, "explain": True},
    ),
    (
        "How things hang together is kept too …",
        "create_entities",
        {
            "entities": [
                {
                    "name": "Shop API",
                    "entity_type": "service",
                    "observations": ["Listens on port 8443", "Written in C++ and Python"],
                }
            ]
        },
    ),
    (
        "… in the same graph that memories name things in.",
        "create_relations",
        {"relations": [{"from": "Shop API", "to": "Orders DB", "relation_type": "reads_from"}]},
    ),
    (
        "From one thing to all that is known around it.",
        "search_knowledge_graph",
        {"entity": "Shop API"},
    ),
    ("Special characters are no trouble.", "search_nodes", {"query": "C++"}),
    ("Something is deleted by mistake …", "delete_entities", {"names": ["Orders DB"]}),
)


@click.command()
@common
def demo(
    as_json: bool,
    data_dir: str | None,
    project: str | None,
    engine: str | None,
    database_url: str | None,
    **flags: Any,
) -> None:
    """Show store and recall at work, on a temporary folder."""

    async def work(app: App) -> list[dict[str, Any]]:
        session = Session(client="demo")
        told: list[dict[str, Any]] = []
        out = console()
        for sentence, name, arguments in STEPS:
            await app.shelf.catch_up(session, PATIENCE)
            result = await app.call(session, name, arguments)
            told.append({"tool": name, "arguments": arguments, "result": result.structured})
            if not as_json:
                out.print(f"\n[bold]{sentence}[/bold]  [dim]{name}[/dim]")
                render(result)
        entry = await app.timeline.undo(None, None, "demo")
        found = await app.call(session, "open_nodes", {"names": ["Orders DB"]})
        told.append({"tool": "undo", "result": found.structured})
        if not as_json:
            out.print("\n[bold]… and `everkept undo` takes it back.[/bold]  [dim]undo[/dim]")
            out.print(f"Undone: {entry.change.tool} {entry.summary}", markup=False)
            render(found)
            out.print("\nThis was a temporary folder. `everkept serve` starts the real thing.")
        return told

    with tempfile.TemporaryDirectory(prefix="everkept-demo-") as folder:
        here = {"data_dir": Path(folder), "deployment_mode": "embedded-file"}
        told = run_with_app(work, **here, engine=engine or "sqlite", **flags)
    if as_json:
        print_json({"steps": told})
