import json
import os
import sys
from pathlib import Path

import pytest

from everkept.transcripts.source_programs import ClientFolders, find_source, get_client_folders, list_agents

SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def folders(tmp_path: Path) -> ClientFolders:
    return get_client_folders({}, tmp_path / "home", "linux")


def written(path: Path, session: str = SESSION, *, at: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"sessionId": session}) + "\n", encoding="utf-8")
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (".claude/projects/-x/a.jsonl", "claude-code"),
        (".codex/sessions/2026/03/02/rollout-a.jsonl", "codex"),
        (".gemini/tmp/x/chats/session-a.jsonl", "gemini"),
        (".cursor/projects/x/agent-transcripts/a/a.jsonl", "cursor"),
        (".claude-of-another/a.jsonl", None),
        ("notes.jsonl", None),
        (".claude/../.ssh/id_rsa", None),
    ],
)
def test_a_place_tells_the_program(folders: ClientFolders, place: str, source: str | None) -> None:
    assert find_source(folders.claude.parent / place, folders) == source


def test_a_link_does_not_lead_out(folders: ClientFolders, tmp_path: Path) -> None:
    if sys.platform == "win32":  # links need a privilege there
        return
    secret = written(tmp_path / "secret.jsonl")
    link = folders.claude / "projects" / "a.jsonl"
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    assert find_source(link, folders) is None


def test_a_program_whose_folder_is_a_link_is_known(folders: ClientFolders, tmp_path: Path) -> None:
    if sys.platform == "win32":
        return
    real = tmp_path / "disk"
    real.mkdir()
    folders.claude.parent.mkdir()
    folders.claude.symlink_to(real)
    assert find_source(folders.claude / "projects" / "a.jsonl", folders) == "claude-code"
    assert find_source(real / "projects" / "a.jsonl", folders) == "claude-code"


def test_what_is_no_path_is_nowhere(folders: ClientFolders) -> None:
    assert find_source(Path("a\0b"), folders) is None


def test_agents_of_a_session_are_those_in_its_folder_and_those_that_name_it(tmp_path: Path) -> None:
    main = written(tmp_path / f"{SESSION}.jsonl")
    newer = written(tmp_path / SESSION / "subagents" / "agent-b.jsonl", at=2)
    older = written(tmp_path / SESSION / "subagents" / "agent-a.jsonl", at=3)
    beside = written(tmp_path / "agent-c.jsonl", at=9)
    written(tmp_path / "agent-d.jsonl", "another session", at=9)
    written(tmp_path / f"{SESSION[::-1]}.jsonl")
    written(tmp_path / SESSION / "subagents" / "agent-b.meta.txt")
    (tmp_path / "agent-e.jsonl").write_bytes(b"\xff\x00")
    (tmp_path / "agent-f.jsonl").mkdir()
    assert list_agents(main, "claude-code", SESSION) == [newer, older, beside]
    assert list_agents(main, "claude-code", "") == []
    assert list_agents(main, "codex", SESSION) == []


def test_agents_of_gemini_lie_in_a_folder_of_the_session(tmp_path: Path) -> None:
    main = written(tmp_path / "chats" / "session-1.jsonl")
    agent = written(tmp_path / "chats" / "parent" / "session-2.jsonl")
    written(tmp_path / "other" / "session-3.jsonl")
    assert list_agents(main, "gemini", "parent") == [agent]
    for name in ("../other", "..", ".", "parent/..", ""):
        assert list_agents(main, "gemini", name) == []
