"""Conversations and memories of ChatGPT's data export."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assistant_exports import START, build_node, build_tree, write_folder, write_zip
from everkept.core.transcripts import Transcript
from everkept.errors import InvalidInput
from everkept.exchange.sources.chatgpt import CHATGPT, list_transcripts
from foreign_stores import Home
from transcript_replay import Replay

LOGINS = build_tree(
    "g1",
    "Logins",
    build_node("u1", "root", "user", "How do I limit logins?"),
    build_node("a1", "u1", "assistant", "An answer that was repeated"),
    build_node("code", "u1", "assistant", {"content_type": "code", "text": "x"}, recipient="python"),
    build_node("out", "code", "tool", {"content_type": "execution_output", "text": "1"}),
    build_node("a2", "out", "assistant", "Count tries\ue200cite\ue202turn0\ue201 per address."),
)
SECRET_CHAT = build_tree("g2", "Hidden", build_node("h1", "root", "user", "Forget me"), is_do_not_remember=True)
SAVED = build_tree(
    "g3",
    "",
    build_node("s1", "root", "user", {"content_type": "multimodal_text", "parts": [{"text": "I like tea"}, "ok"]}),
    build_node("s2", "s1", "assistant", "Likes tea", recipient="bio"),
    build_node(
        "s3",
        "s2",
        "system",
        {"content_type": "model_editable_context", "model_set_context": "1. [2025-03-02]. Likes tea\n2. Owns a cat"},
    ),
)


def read(transcripts: list[Transcript]) -> Replay:
    known = Replay()
    for transcript in transcripts:
        known.mark = None
        known.read(transcript)
    return known


@pytest.mark.parametrize("form", ["zip", "folder", "file"])
def test_the_current_branch_of_each_conversation_is_read(tmp_path: Path, form: str) -> None:
    files: dict[str, Any] = {
        "export/conversations-000.json": [LOGINS],
        "export/conversations-001.json": [SAVED],
        "export/user.json": {},
    }
    if form == "zip":
        place = write_zip(tmp_path / "export.zip", {**files, "__MACOSX/conversations.json": "x"})
    elif form == "folder":
        place = write_folder(tmp_path / "there", files)
    else:
        place = write_folder(tmp_path / "there", {"old.json": [LOGINS, SAVED]}) / "old.json"
    known = read(list_transcripts(place))
    texts = {key: (turn.author, turn.text) for key, turn in known.turns.items()}
    assert texts == {
        "u1": ("user", "How do I limit logins?"),
        "code": ("assistant", "Count tries per address."),
        "s1": ("user", "I like tea\n\nok"),
        "s2": ("assistant", ""),
    }
    assert known.turns["code"].tools == ("python",)
    assert known.turns["u1"].at == round((START + 2) * 1_000_000)
    assert known.titles == {"g1": "Logins"}


def test_a_conversation_that_must_not_be_remembered_is_counted_and_skipped(tmp_path: Path) -> None:
    place = write_zip(tmp_path / "export.zip", {"conversations.json": [SECRET_CHAT]})
    known = read(list_transcripts(place))
    assert (known.turns, known.skipped) == ({}, {"conversation marked as not to remember": 1})


async def test_what_was_saved_becomes_a_memory_of_the_user_once(home: Home, tmp_path: Path) -> None:
    place = write_zip(tmp_path / "export.zip", {"conversations.json": [LOGINS, SAVED, SECRET_CHAT]})
    first = await home.take(CHATGPT, place)
    memories = await home.memories(None)
    assert {*memories} == {"Likes tea", "Owns a cat"}
    assert memories["Likes tea"].tags == ("chatgpt",)
    again = await home.take(CHATGPT, place)
    assert (first.memories, again.memories) == (2, 0)


def test_a_circle_of_messages_ends(tmp_path: Path) -> None:
    circle = build_tree("g4", "x", build_node("a", "b", "user", "one"), build_node("b", "a", "user", "two"))
    place = write_zip(tmp_path / "export.zip", {"conversations.json": [circle, {**LOGINS, "current_node": "gone"}]})
    assert {"one", "two"} <= {turn.text for turn in read(list_transcripts(place)).turns.values()}


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "[1, 2", "no JSON", '[{"chat_messages": [], "uuid": "c"}]'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(content, encoding="utf-8")
    for place in (path, tmp_path):
        with pytest.raises(InvalidInput) as refused:
            list(CHATGPT.read(place, Counter()))
        assert str(tmp_path) in refused.value.message
