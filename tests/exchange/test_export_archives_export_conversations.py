"""Reading of large exports: in portions, again from where an interrupted import was, and once."""

from pathlib import Path
from typing import Any

from assistant_exports import build_node, build_tree, write_zip
from everkept.exchange.sources.chatgpt import list_transcripts
from transcript_replay import Replay

MESSAGES, CHATS = 300, 5


def make_export(path: Path, chats: int = CHATS) -> Path:
    trees: list[Any] = []
    for chat in range(chats):
        names = [f"c{chat}-{number}" for number in range(MESSAGES)]
        parents = ["root", *names]
        roles = ("user", "assistant")
        nodes = [
            build_node(name, parent, roles[number % 2], name)
            for number, (name, parent) in enumerate(zip(names, parents, strict=False))
        ]
        trees.append(build_tree(f"g{chat}", f"Chat {chat}", *nodes))
    return write_zip(path, {"conversations.json": trees})


def test_an_interrupted_reading_goes_on_in_the_middle_of_a_conversation(tmp_path: Path, thorough: bool) -> None:
    (transcript,) = list_transcripts(make_export(tmp_path / "export.zip"))
    portions = list(transcript.read_portions(None))
    assert len(portions) > CHATS
    assert [portion.is_last for portion in portions] == [False] * (len(portions) - 1) + [True]
    for count in range(0, len(portions), 1 if thorough else 4):
        known = Replay().read(transcript, count)
        before = len(known.turns)
        assert sum(len(each.events) for each in transcript.read_portions(known.mark)) > 0 or before == CHATS * MESSAGES
        assert len(known.read(transcript).turns) == CHATS * MESSAGES


def test_progress_follows_the_bytes_of_the_file(tmp_path: Path) -> None:
    (transcript,) = list_transcripts(make_export(tmp_path / "export.zip"))
    done = [portion.done for portion in transcript.read_portions(None)]
    assert done == sorted(done)
    assert done[-1] == transcript.size


def test_a_newer_file_is_read_from_the_start_and_removes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    (transcript,) = list_transcripts(make_export(path))
    known = Replay().read(transcript)
    (newer,) = list_transcripts(make_export(path, 2))
    assert not any(portion.is_anew for portion in newer.read_portions(known.mark))
    assert len(known.read(newer).turns) == CHATS * MESSAGES
