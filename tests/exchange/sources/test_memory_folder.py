"""Memories that assistants keep in folders of Markdown."""

import json
from pathlib import Path

import pytest

from everkept.core.times import format_iso
from everkept.errors import InvalidInput
from everkept.exchange.foreign import Machine
from everkept.exchange.sources.memory_folder import MEMORY_FOLDER, split_parts
from foreign_stores import Home
from plugin_databases import read_files

LIMIT = """---
name: login-limit
description: Logins are limited to five a minute
metadata:
  node_type: memory
  type: project
  originSessionId: 1111aaaa
  modified: 2026-11-16T08:09:32.757Z
---
Kept in Redis. See [[redis-setup]].
"""
REDIS = "---\nname: redis-setup\ndescription: Redis listens on 6380\nmetadata:\n  type: reference\n---\n"
TABS = "---\nname: tabs\ndescription: Always use tabs\ntype: feedback\n---\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_claude_folder(home: Path) -> Path:
    folder = home / ".claude" / "projects" / "-work-my-shop" / "memory"
    write(folder.parent / "s1.jsonl", json.dumps({"type": "summary"}) + "\n" + json.dumps({"cwd": "/work/my-shop"}))
    write(folder / "MEMORY.md", "- [Limit](login-limit.md) — five a minute\n- The owner is called Ada\n")
    write(folder / "login-limit.md", LIMIT)
    write(folder / "redis-setup.md", REDIS)
    write(folder / "tabs.md", TABS)
    write(folder / "team" / "rules.md", "Not personal")
    return folder


async def test_memories_of_claude_code_go_to_the_project_of_its_transcripts(home: Home, tmp_path: Path) -> None:
    folder = make_claude_folder(tmp_path)
    before = read_files(folder)
    first = await home.take(MEMORY_FOLDER, folder)
    assert (first.memories, first.projects, first.skipped) == (4, ["my-shop"], {"line of the index": 1})
    limit = (await home.memories("my-shop"))[
        "Logins are limited to five a minute\n\nKept in Redis. See [[redis-setup]]."
    ]
    assert (limit.session, limit.tags, limit.name) == ("1111aaaa", ("project",), "login-limit.md")
    assert format_iso(limit.created_at) == "2026-11-16T08:09:32.757Z"
    tabs = (await home.memories(None))["Always use tabs"]
    assert (tabs.type, tabs.scope) == ("procedural", "user")
    assert {verb for _, verb, _ in await home.triples("my-shop")} == {"links_to"}
    again = await home.take(MEMORY_FOLDER, folder)
    assert (again.memories, again.updated, again.unchanged) == (0, 0, 5)
    assert read_files(folder) == before


async def test_an_edited_file_changes_its_memory(home: Home, tmp_path: Path) -> None:
    folder = make_claude_folder(tmp_path)
    await home.take(MEMORY_FOLDER, folder)
    write(folder / "tabs.md", TABS.replace("tabs\n", "spaces\n"))
    again = await home.take(MEMORY_FOLDER, folder)
    assert (again.memories, again.updated) == (0, 1)
    assert [*await home.memories(None)] == ["Always use spaces"]


async def test_summaries_of_codex_join_their_conversation(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "memories"
    write(folder / "MEMORY.md", "# Habits\n\nShips on Fridays.\n")
    write(folder / "raw_memories.md", "## Thread `t1`\n\nthe same again")
    head = "thread_id: t1\nupdated_at: 2026-03-02T10:00:00Z\ncwd: /work/shop\n"
    write(folder / "rollout_summaries" / "a.md", f"{head}\nMoved orders to PostgreSQL.\n")
    outcome = await home.take(MEMORY_FOLDER, folder)
    assert outcome.skipped == {"file that repeats others": 1}
    moved = (await home.memories("shop"))["Moved orders to PostgreSQL."]
    assert (moved.type, moved.session, format_iso(moved.created_at)) == ("episodic", "t1", "2026-03-02T10:00:00.000Z")
    assert [*await home.memories(None)] == ["Habits\n\nShips on Fridays."]


async def test_plain_files_of_the_memory_tool_are_memories_of_the_user(home: Home, tmp_path: Path) -> None:
    write(tmp_path / "memories" / "customers" / "acme.xml", "<acme>Pays late</acme>")
    write(tmp_path / "memories" / "notes.md", "- likes tea\n- hates coffee\n")
    await home.take(MEMORY_FOLDER, tmp_path / "memories")
    memories = await home.memories(None)
    assert {*memories} == {"<acme>Pays late</acme>", "likes tea", "hates coffee"}
    assert memories["<acme>Pays late</acme>"].tags == ("customers",)


def test_parts_are_sections_or_items_below_their_heading() -> None:
    text = "Intro\n\n# Style\n- tabs\n- ruff\n\n## Ports\nAPI on 8443.\n\n- one item\n\n# Empty\n"
    assert [*split_parts(text)] == ["Intro", "Style: tabs", "Style: ruff", "Ports\n\nAPI on 8443.\n\n- one item"]


def test_folders_of_programs_are_found(tmp_path: Path) -> None:
    folder = make_claude_folder(tmp_path)
    codex = write(tmp_path / "codex" / "memories" / "MEMORY.md", "x").parent
    agent = write(tmp_path / ".claude" / "agent-memory" / "reviewer" / "MEMORY.md", "x").parent
    found = MEMORY_FOLDER.find(Machine({"CODEX_HOME": str(tmp_path / "codex")}, tmp_path, "linux"))
    assert {*found} == {folder, codex, agent}


@pytest.mark.parametrize("name", ["none", "picture.png"])
async def test_another_place_is_refused(home: Home, tmp_path: Path, name: str) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(InvalidInput):
        await home.take(MEMORY_FOLDER, tmp_path / name)
