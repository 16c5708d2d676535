"""Conversations and memories of Claude.ai's data export."""

from collections import Counter
from pathlib import Path

import pytest

from assistant_exports import build_chat, write_folder, write_zip
from everkept.errors import InvalidInput
from everkept.exchange.foreign import Machine
from everkept.exchange.sources.claude_ai import CLAUDE_AI, list_transcripts
from foreign_stores import Home
from transcript_replay import Replay

PROJECT = {"uuid": "p1", "name": "shop", "docs": [{"uuid": "d"}]}
REMEMBERED = {
    "conversations_memory": (
        "**Work**\n\nBuilds a shop.\n\nLeads a team.\n\n# Tools\nWorks on Linux.\n- uses ruff\n- likes tabs\n"
    ),
    "project_memories": {"p1": "Orders live in PostgreSQL."},
    "account_uuid": "a1",
}


def test_the_newest_answer_of_each_question_is_read(tmp_path: Path) -> None:
    chat = build_chat(project={"uuid": "p1"})
    chat["chat_messages"][2]["content"] += [
        {"type": "tool_use", "name": "web_search"},
        {"type": "thinking", "text": "hm"},
    ]
    place = write_zip(
        tmp_path / "data.zip", {"conversations.json": [chat], "projects.json": [PROJECT], "users.json": []}
    )
    (transcript,) = list_transcripts(place)
    known = Replay().read(transcript)
    assert [turn.text for turn in known.turns.values()] == ["How do I limit logins?", "Count tries per address."]
    assert known.turns["c1-3"].tools == ("web_search",)
    assert known.turns["c1-1"].project == "shop"
    assert known.titles == {"c1": "Logins"}


def test_several_archives_in_a_folder_are_one_export(tmp_path: Path) -> None:
    write_zip(tmp_path / "conversations-000.zip", {"conversations.json": [build_chat("c1")]})
    write_zip(tmp_path / "conversations-001.zip", {"conversations.json": [build_chat("c2"), build_chat("c1")]})
    keys = {key for transcript in list_transcripts(tmp_path) for key in Replay().read(transcript).turns}
    assert keys == {"c1-1", "c1-3", "c2-1", "c2-3"}


def test_an_older_export_without_parents_keeps_all_messages(tmp_path: Path) -> None:
    chat = build_chat()
    for message in chat["chat_messages"]:
        del message["parent_message_uuid"]
    (transcript,) = list_transcripts(write_zip(tmp_path / "data.zip", {"conversations.json": [chat]}))
    assert "An answer that was repeated" in {turn.text for turn in Replay().read(transcript).turns.values()}


@pytest.mark.parametrize("name", ["memories.json", "memories/a1.json"])
async def test_memories_go_to_the_user_and_to_their_projects(home: Home, tmp_path: Path, name: str) -> None:
    files = {name: REMEMBERED if "/" in name else [REMEMBERED], "projects/p1.json": PROJECT}
    place = write_folder(tmp_path / "export", files)
    first = await home.take(CLAUDE_AI, place)
    work = {"Work: Builds a shop.", "Work: Leads a team."}
    assert {*await home.memories(None)} == work | {
        f"Tools: {it}" for it in ("Works on Linux.", "uses ruff", "likes tabs")
    }
    assert [*await home.memories("shop")] == ["Orders live in PostgreSQL."]
    again = await home.take(CLAUDE_AI, place)
    assert (first.memories, again.memories) == (6, 0)


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "[1, 2", '[{"mapping": {}, "id": "g"}]'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        list(CLAUDE_AI.read(path, Counter()))
    assert str(path) in refused.value.message


def test_downloaded_exports_are_found(tmp_path: Path) -> None:
    (tmp_path / "Downloads").mkdir()
    place = write_zip(tmp_path / "Downloads" / "data-1-2-3-batch-0000.zip", {"conversations.json": []})
    assert CLAUDE_AI.find(Machine({}, tmp_path, "linux")) == [place]
