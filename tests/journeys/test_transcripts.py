"""The files of each program on their way into the store: all at once, growing, and rewritten."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from editor_actors import conversation, opened, put
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.history.model import TRANSCRIPT, TURN
from everkept.transcripts.discovery import MachineTranscripts
from everkept.transcripts.source_programs import get_client_folders
from memory_transcripts import contents, importer

SAMPLES = Path(__file__).parents[1] / "transcripts" / "samples"
SESSION = "11111111-2222-4333-8444-555555555555"
PLAIN = [
    {"session": "p", "author": "Ada", "timestamp": "2026-03-02T10:00:00Z", "text": "What is a set?"},
    {"session": "p", "author": "Bob", "timestamp": "2026-03-02T10:01:00Z", "text": "A bag."},
    {"session": "q", "author": "Ada", "timestamp": "2026-03-02T10:02:00Z", "text": "Thanks."},
]


class Kept(NamedTuple):
    """Where a program keeps a conversation, what is in it, and a part that somebody said."""

    source: str
    place: str
    content: bytes
    said: str


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


KEPT = [
    Kept(
        "claude-code",
        f".claude/projects/-shop/{SESSION}.jsonl",
        sample("claude_code_session.jsonl"),
        "Add rate limiting to the login endpoint",
    ),
    Kept(
        "codex",
        ".codex/sessions/2026/03/02/rollout-2026-03-02T10-00-00-019c.jsonl",
        sample("codex_rollout.jsonl"),
        "Why does the cart test fail?",
    ),
    Kept(
        "gemini",
        ".gemini/tmp/shop/chats/session-2026-03-02T11-00-22222222.jsonl",
        sample("gemini_session.jsonl"),
        "Explain",
    ),
    Kept(
        "gemini",
        ".gemini/tmp/shop/chats/session-2025-12-03T06-35-33333333.json",
        sample("gemini_session_legacy.json"),
        "hello",
    ),
    Kept(
        "cursor",
        f".cursor/projects/shop/agent-transcripts/{SESSION}/{SESSION}.jsonl",
        sample("cursor_agent_transcript.jsonl"),
        "Rename Cart to Basket",
    ),
    Kept("jsonl", "said.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in PLAIN), "What is a set?"),
]


@pytest.fixture(params=KEPT, ids=lambda kept: Path(kept.place).parts[0] + Path(kept.place).suffix)
def kept(request: pytest.FixtureRequest) -> Kept:
    return request.param


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RecordStore]:
    library = SqliteLibrary(tmp_path / "data")
    store = await library.open_history_store()
    yield store
    assert await store.find_faults() == []
    await library.close()


def written(home: Path, kept: Kept, content: bytes) -> None:
    path = home / kept.place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


async def taken_in(store: RecordStore, home: Path, kept: Kept) -> Any:
    machine = MachineTranscripts(get_client_folders({}, home, "linux"))
    files = [home / kept.place] if kept.source == "jsonl" else []
    found = machine.find_transcripts([kept.source], files)
    imported = await importer(store).import_transcripts(found)
    assert imported.failures == []
    return imported.total


async def told(store: RecordStore) -> dict[str, Any]:
    found = await contents(store)
    return {name: each for name, each in found.items() if not (isinstance(each, Record) and each.kind == TRANSCRIPT)}


async def clean(home: Path, kept: Kept) -> dict[str, Any]:
    store = MemoryStore()
    await taken_in(store, home, kept)
    return await told(store)


async def test_what_was_said_is_taken_in_once(store: RecordStore, tmp_path: Path, kept: Kept) -> None:
    written(tmp_path, kept, kept.content)
    assert (await taken_in(store, tmp_path, kept)).turns >= 2
    assert any(kept.said in turn.text for turn in await store.scan(RecordFilter(kinds=(TURN,))))
    [checkpoint] = await store.scan(RecordFilter(kinds=(TRANSCRIPT,)))
    assert checkpoint.facets["mark"]
    revision = await store.get_revision()
    assert (await taken_in(store, tmp_path, kept)).unchanged == 1
    assert await store.get_revision() == revision


async def test_a_file_that_grows_line_by_line_ends_like_one_that_was_there(
    store: RecordStore, tmp_path: Path, kept: Kept
) -> None:
    lines = kept.content.splitlines(keepends=True)
    steps = range(1, len(lines) + 1) if kept.place.endswith(".jsonl") else [len(lines)]
    for end in steps:
        written(tmp_path, kept, b"".join(lines[:end]))
        await taken_in(store, tmp_path, kept)
    made, wanted = await told(store), await clean(tmp_path, kept)
    assert made.keys() == wanted.keys()
    assert _texts(made) == _texts(wanted)


async def test_a_file_that_is_rewritten_ends_like_one_that_was_never_other(
    store: RecordStore, tmp_path: Path, kept: Kept
) -> None:
    written(tmp_path, kept, kept.content)
    await taken_in(store, tmp_path, kept)
    written(tmp_path, kept, kept.content.replace(kept.said.encode(), b"Something else, and longer"))
    await taken_in(store, tmp_path, kept)
    made, wanted = await told(store), await clean(tmp_path, kept)
    assert made.keys() == wanted.keys()
    assert _texts(made) == _texts(wanted)
    assert any("Something else" in text for text in _texts(made).values())


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {name: each.text for name, each in found.items() if isinstance(each, Record)}


async def test_a_conversation_that_an_editor_keeps_twice_is_taken_in_once(store: RecordStore, tmp_path: Path) -> None:
    kept = next(each for each in KEPT if each.source == "cursor")
    database = get_client_folders({}, tmp_path, "linux").cursor_user / "globalStorage/state.vscdb"
    bubbles = [{"type": 1, "text": kept.said}, {"type": 2, "text": "Searching for uses."}]
    with opened(database) as connection:
        put(connection, conversation(SESSION, *bubbles))
    connection.close()
    readable = database.read_bytes()
    written(tmp_path, kept, kept.content)
    database.write_bytes(b"no database" * 1_000)
    machine = MachineTranscripts(get_client_folders({}, tmp_path, "linux"))
    await importer(store).import_transcripts(machine.find_transcripts(["cursor"]))
    before = await store.scan(RecordFilter(kinds=(TURN,)))
    database.write_bytes(readable)
    await importer(store).import_transcripts(machine.find_transcripts(["cursor"]))
    assert await store.scan(RecordFilter(kinds=(TURN,))) == before
    assert len(before) == 2
