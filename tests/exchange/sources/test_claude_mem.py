"""What claude-mem observed, imported from its database and from its export."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from everkept.core.times import format_iso
from everkept.errors import InvalidInput
from everkept.exchange.sources.claude_mem import CLAUDE_MEM, DATABASE
from foreign_stores import Home, unpack_rival
from plugin_databases import read_files

CONVERSATION = "11111111-aaaa-4bbb-8ccc-000000000001"
OBSERVED = """Rate limit by IP

five tries a minute

We limit login attempts per IP address.

- limit is 5/min
- stored in Redis"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_rival("claude-mem", tmp_path)


def write_export(store: Path, name: str) -> Path:
    """Write the rows as the program's export script does."""
    database = sqlite3.connect(store / DATABASE)
    database.row_factory = sqlite3.Row
    tables = {
        "observations": "observations",
        "sessions": "sdk_sessions",
        "summaries": "session_summaries",
        "prompts": "user_prompts",
    }
    rows: dict[str, Any] = {"exportedAt": "2026-11-17T00:00:00Z", "totalObservations": 1}
    for key, table in tables.items():
        rows[key] = [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
    database.close()
    path = store / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


async def test_observations_and_summaries_join_their_conversation_and_come_once(home: Home, store: Path) -> None:
    before = read_files(store)
    first = await home.take(CLAUDE_MEM, store)
    assert (first.memories, first.projects) == (2, ["shop"])
    assert [*first.skipped] == ["prompt, which `everkept import history` reads with its conversation"]
    memories = await home.memories("shop")
    observed = memories[OBSERVED]
    assert (observed.type, observed.importance, observed.session) == ("semantic", 0.6, CONVERSATION)
    assert observed.tags == ("decision", "how-it-works", "gotcha")
    assert format_iso(observed.created_at) == "2026-11-16T08:12:18.633Z"
    summary = next(record for text, record in memories.items() if text.startswith("Request: limit logins"))
    assert "Next steps: tests" in summary.text
    assert summary.type == "episodic"
    files = {target for source, _, target in await home.triples("shop") if source == OBSERVED}
    assert files == {"src/login.py", "src/limit.py"}
    again = await home.take(CLAUDE_MEM, store)
    assert (again.memories, again.entities, again.links, again.unchanged) == (0, 0, 0, 8)
    assert read_files(store) == before


async def test_the_export_of_the_same_rows_adds_nothing(home: Home, store: Path) -> None:
    await home.take(CLAUDE_MEM, store)
    exported = await home.take(CLAUDE_MEM, write_export(store, "export.json"))
    assert (exported.memories, exported.updated, exported.unchanged) == (0, 0, 8)


async def test_a_worktree_belongs_to_its_project_and_concepts_can_decide_the_type(home: Home, store: Path) -> None:
    database = sqlite3.connect(store / DATABASE)
    add = "INSERT INTO observations (memory_session_id, project, type, title, concepts, created_at, created_at_epoch) "
    session = "'22222222-aaaa-4bbb-8ccc-000000000002'"
    for kind, title, project in (("discovery", "Retry twice", "web/fix"), ("bugfix", "Closed the socket", "web")):
        database.execute(f"""{add} VALUES ({session}, '{project}', '{kind}', '{title}', '["pattern"]', '', 5e11)""")
    database.commit()
    database.close()
    await home.take(CLAUDE_MEM, store)
    types = {text: record.type for text, record in (await home.memories("web")).items()}
    assert types == {"Retry twice": "procedural", "Closed the socket": "episodic"}


@pytest.mark.parametrize("content", ["", "[]", '{"observations": [{"id": 1}]}', "SQLite format 3\0" + "x" * 200])
async def test_another_file_is_refused(home: Home, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        await home.take(CLAUDE_MEM, path)
    assert str(path) in refused.value.message
