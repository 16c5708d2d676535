"""Data folders for the console to show: a small shop's, one of hostile texts, and a large graph."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from everkept import Memory
from everkept.api.results import Said
from past_work import CONVERSATIONS

AUTOMATIC = "hook PostToolUse"  # the source that makes a memory automatic
SESSION = "6b1f0a52-shop"

# text, type, importance, tags, entities that it is about
STATEMENTS = """
We chose PostgreSQL 17 for the order data because of its row locks. | semantic | 0.9 | decision, database | Orders DB
The Shop API answers on port 8443; its staging twin on 9443. | semantic | 0.6 | config | Shop API
Deploy on Fridays only with the on-call engineer. | procedural | 0.8 | deploy, rule | Shop API
Run `make seed` before the integration tests, or three of them fail. | procedural | 0.7 | tests |
Webhooks are retried after 1, 5, 25 and 125 seconds, then given to support. | semantic | 0.7 | webhooks | Webhook Worker
Mira asked for prices with tax in all e-mails. | episodic | 0.5 | billing | Mira, Mail Service
The cart stores prices in cents, never in floating point. | semantic | 0.8 | decision, billing | Cart
Stripe's test key expires on the first of each month. | semantic | 0.4 | billing | Stripe
Login attempts are limited to five a minute for each address. | semantic | 0.7 | security, decision | Shop API
The search box waits 300 ms before it asks. | semantic | 0.3 | frontend | Shop Web
Ada reviews every change to the ledger. | procedural | 0.6 | rule | Ada, Ledger
The March outage began with a full disk on the queue's machine. | episodic | 0.6 | incident | Queue
We tried Redis streams for the queue and went back to PostgreSQL. | episodic | 0.5 | decision, database | Queue
Images are shrunk to 800 pixels in the browser before upload. | semantic | 0.4 | frontend | Shop Web
Invoices are numbered without gaps, because the tax office asks for it. | semantic | 0.9 | billing, rule | Ledger
Write migrations so that the old version still runs on the new schema. | procedural | 0.8 | database, rule | Orders DB
"""
NOTICED = (
    "The command `make test` failed: the port 5432 was in use. Stopping the old container fixed it.",
    "Edited src/cart/prices.py to round half to even.",
    "The command `npm run build` failed without NODE_ENV. It passes with NODE_ENV=production.",
)
ENTITIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Shop API", "service", ("answers on port 8443", "written in Python with Starlette", "owned by Ada")),
    ("Shop Web", "service", ("the pages that customers see", "built with plain modules")),
    ("Orders DB", "database", ("PostgreSQL 17", "backed up each night at two")),
    ("Queue", "service", ("a table of the Orders DB",)),
    ("Webhook Worker", "service", ("sends events to partners",)),
    ("Mail Service", "service", ("sends invoices and reminders",)),
    ("Cart", "component", ("keeps prices in cents",)),
    ("Ledger", "component", ("numbers invoices without gaps",)),
    ("Stripe", "vendor", ("takes card payments",)),
    ("Ada", "person", ("leads the backend", "reviews the ledger")),
    ("Mira", "person", ("speaks for the customers",)),
    ("Jon", "person", ("runs the machines", "is on call in even weeks")),
    ("Checkout", "feature", ("three steps since May",)),
    ("Refunds", "feature", ("by hand until the ledger supports them",)),
)
RELATIONS = (
    ("Shop Web", "calls", "Shop API"), ("Shop API", "reads", "Orders DB"), ("Queue", "lives_in", "Orders DB"),
    ("Webhook Worker", "reads", "Queue"), ("Mail Service", "reads", "Queue"), ("Cart", "part_of", "Shop API"),
    ("Ledger", "part_of", "Shop API"), ("Shop API", "pays_with", "Stripe"), ("Ada", "maintains", "Shop API"),
    ("Ada", "reviews", "Ledger"), ("Jon", "operates", "Orders DB"), ("Jon", "operates", "Queue"),
    ("Mira", "asked_for", "Checkout"), ("Checkout", "uses", "Cart"), ("Checkout", "uses", "Stripe"),
    ("Refunds", "changes", "Ledger"), ("Mira", "asked_for", "Refunds"),
)  # fmt: skip
BANK_FILES = {
    "product-context.md": "# Shop\n\nSells *lamps*.\n\n| part | owner |\n|---|---|\n| API | Ada |\n| web | Jon |\n",
    "active-context.md": "# Now\n\n- Checkout in three steps\n- [x] taxes\n\n```python\nLIMIT = 5\n```\n",
    "decision-log.md": "# Decisions\n\n## PostgreSQL for orders\n\nIts row locks keep two clerks apart.\n",
}


def split_words(cell: str) -> list[str]:
    return [each.strip() for each in cell.split(",") if each.strip()]


class FilledMemory(Memory):
    """A memory that takes calls of every tool."""

    def call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        return self._call(tool, **arguments)


def open_memory(data_dir: Path, project: str, folder: Path | str | None = None) -> FilledMemory:
    return FilledMemory.open(project=project, folder=folder or data_dir.parent, data_dir=data_dir)


def fill_shop(data_dir: Path) -> None:
    """Two projects, with something of everything that the console shows."""
    with open_memory(data_dir, "shop") as memory:
        memory.call("create_project", name="shop", description="The lamp shop")
        for name, kind, observations in ENTITIES:
            memory.graph.add(name, kind, observations)
        for source, verb, target in RELATIONS:
            memory.graph.relate(source, verb, target)
        for number, line in enumerate(STATEMENTS.strip().splitlines()):
            text, kind, importance, tags, about = (cell.strip() for cell in line.split("|"))
            happened = datetime.now(UTC) - timedelta(days=3 * number, hours=2)
            memory.call(
                "store_memory",
                content=text,
                type=kind,
                importance=float(importance),
                tags=split_words(tags),
                related_entities=[{"name": each} for each in split_words(about)],
                author=("ada", "jon")[number % 2],
                occurred_at=happened.isoformat(),
                pinned=number in (0, 6) or None,
            )
        for text in NOTICED:
            memory.call("store_memory", content=text, session_id=SESSION, source={"tool": AUTOMATIC})
        memory.remember("Answer briefly and in English.", scope="user", importance=0.8, tags=["preference"])
        old = memory.remember("The Shop API answers on port 8080.", tags=["config"])
        memory.edit(old.id, text="The Shop API answered on port 8080 until May.")
        memory.forget(memory.remember("The office plant is called Kurt.").id, "not worth keeping")
        memory.recall("which database stores orders")
    for conversation in CONVERSATIONS:
        began = datetime.now(UTC) - timedelta(days=conversation.days_ago)
        turns = [
            Said(("user", "assistant")[number % 2], text, began + timedelta(minutes=number))
            for number, text in enumerate(conversation.turns)
        ]
        with open_memory(data_dir, "shop", conversation.project) as memory:
            memory.conversations.add(conversation.session, turns, title=conversation.turns[0][:60])
    with open_memory(data_dir, "blog") as memory:
        memory.call("create_project", name="blog", description="What we write about lamps")
        memory.remember("The blog uses SQLite, because one writer is enough.", tags=["decision", "database"])
        memory.graph.add("Blog", "service", ["static pages with a comment box"])


def fill_bank(workspace: Path) -> None:
    """A memory bank in a folder."""
    folder = workspace / "memory-bank"
    folder.mkdir(parents=True)
    for name, text in BANK_FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


ATTACKS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    '"\'><svg onload="window.hit=1">',
    "[click](javascript:window.hit=1) ![x](http://192.0.2.1/pixel.png) <javascript:window.hit=1>",
    "{{constructor.constructor('window.hit=1')()}} ${window.hit=1}",
    "\u202egnirts desrever\u202c \u200bzero\u200b \ufeff \U000e0041",
    "W" * 400,
    "# heading\n\n" + "> " * 30 + "deep\n\n" + "* " * 20 + "[a](data:text/html,<script>window.hit=1</script>)",
)
LONG = ("long word " * 10_000)[:99_990]  # as long as a memory may be


def fill_hostile(data_dir: Path) -> None:
    """Every field that takes a text holds one that would do harm, were it parsed or not bounded."""
    with open_memory(data_dir, "shop") as memory:
        memory.call("create_project", name="shop", description=ATTACKS[1])
        names: list[str] = []
        for number, text in enumerate([*ATTACKS, LONG]):
            line = " ".join(text.split())
            name = f"{line[:180]} {number}"
            memory.graph.add(name, line[:60], [text[:2_000], *ATTACKS[:3]])
            memory.call(
                "store_memory",
                content=f"{text} {number}",
                tags=[line[:60], "<b>bold</b>"],
                author=line[:100],
                session_id=f"{number}{ATTACKS[2]}"[:100],
                related_entities=[{"name": name}],
                source={"tool": AUTOMATIC if number % 2 else ATTACKS[0], "file": ATTACKS[1]},
                metadata={"<b>": text[:200]},
            )
            names.append(name)
        for source, target in pairwise(names):
            memory.graph.relate(source, ATTACKS[0], target)
        turns = [Said(("user", "assistant")[number % 2], text) for number, text in enumerate([*ATTACKS, LONG])]
        memory.conversations.add("talk", turns, title=ATTACKS[0])


def fill_large_graph(data_dir: Path, entities: int, relations: int) -> None:
    """A graph of one project in which few entities have many relations."""
    with open_memory(data_dir, "large") as memory:
        memory.call("create_project", name="large")
        names = [f"Node {number}" for number in range(entities)]
        for start in range(0, entities, 500):
            rows = [
                {"name": name, "entity_type": f"kind {number % 7}", "observations": []}
                for number, name in enumerate(names[start : start + 500], start)
            ]
            memory.call("create_entities", entities=rows)
        pairs = {(number, number * 7 // 11) for number in range(1, entities)}
        step = 0
        while len(pairs) < relations:
            step += 1
            pairs.add((step * 7919 % entities, step * 104729 % (entities // 3)))
        ordered = sorted((source, target) for source, target in pairs if source != target)[:relations]
        for start in range(0, len(ordered), 500):
            links = [
                {"from": names[source], "relation_type": "knows", "to": names[target]}
                for source, target in ordered[start : start + 500]
            ]
            memory.call("create_relations", relations=links)
