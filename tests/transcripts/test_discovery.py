import os
import shutil
import sys
from pathlib import Path

import pytest

from editor_actors import conversation, opened, put
from everkept.core.transcripts import Transcripts
from everkept.errors import InvalidInput, NotFound
from everkept.transcripts.discovery import MachineTranscripts
from everkept.transcripts.source_programs import SOURCES, ClientFolders, get_client_folders
from transcript_replay import SAMPLES, replayed

SESSION = "11111111-2222-4333-8444-555555555555"
CLAUDE = f".claude/projects/-shop/{SESSION}.jsonl"
CODEX = ".codex/sessions/2026/03/02/rollout-2026-03-02T10-00-00-019c.jsonl"
GEMINI = ".gemini/tmp/shop/chats/session-2026-03-02T11-00-22222222.jsonl"
CURSOR = f".cursor/projects/shop/agent-transcripts/{SESSION}/{SESSION}.jsonl"
SAMPLE_OF = {
    CLAUDE: "claude_code_session.jsonl",
    CODEX: "codex_rollout.jsonl",
    GEMINI: "gemini_session.jsonl",
    CURSOR: "cursor_agent_transcript.jsonl",
}


def folders(home: Path) -> ClientFolders:
    return get_client_folders({}, home, "linux")


def machine(home: Path) -> Transcripts:
    return MachineTranscripts(folders(home))


def placed(home: Path, *names: str) -> list[Path]:
    """Files that begin as the program would, the first one the oldest."""
    paths: list[Path] = []
    for count, name in enumerate(names):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SAMPLES / SAMPLE_OF.get(name, "gemini_session.jsonl"), path)
        os.utime(path, (1_700_000_000 + count, 1_700_000_000 + count))
        paths.append(path)
    return paths


def names(found: Transcripts, *sources: str) -> list[str]:
    return [transcript.name for transcript in found.find_transcripts(sources)]


def test_a_machine_without_programs_has_no_transcripts(tmp_path: Path) -> None:
    assert machine(tmp_path).sources == SOURCES
    assert machine(tmp_path).find_transcripts() == []


def test_all_programs_are_looked_for_oldest_first(tmp_path: Path) -> None:
    order = [CURSOR, CLAUDE, GEMINI, CODEX]
    paths = placed(tmp_path, *order)
    found = machine(tmp_path).find_transcripts()
    assert [transcript.name for transcript in found] == [str(path) for path in paths]
    assert [transcript.source for transcript in found] == ["cursor", "claude-code", "gemini", "codex"]
    assert all(replayed(transcript).turns for transcript in found)


def test_only_the_sources_that_are_asked_for_are_looked_for(tmp_path: Path) -> None:
    placed(tmp_path, CURSOR, CLAUDE, GEMINI, CODEX)
    found = machine(tmp_path).find_transcripts(["codex", "gemini"])
    assert [transcript.source for transcript in found] == ["gemini", "codex"]


def test_transcripts_are_found_wherever_a_program_puts_them(tmp_path: Path) -> None:
    paths = placed(
        tmp_path,
        ".claude/projects/-shop/one/subagents/agent-1.jsonl",
        ".claude/transcripts/ses_1.jsonl",
        ".codex/archived_sessions/rollout-1.jsonl.zst",
        ".gemini/tmp/shop/chats/session-1.json",
        ".gemini/tmp/shop/chats/parent/agent.jsonl",
        ".cursor/projects/shop/agent-transcripts/old.txt",
        f".cursor/projects/shop/agent-transcripts/{SESSION}/subagents/a1.jsonl",
    )
    assert names(machine(tmp_path)) == [str(path) for path in paths]


def test_other_files_are_passed_by(tmp_path: Path) -> None:
    placed(
        tmp_path,
        ".claude/history.jsonl",
        ".claude/projects/-shop/one/tool-results/a.txt",
        ".codex/history.jsonl",
        ".codex/sessions/2026/notes.md",
        ".gemini/tmp/shop/logs.json",
        ".gemini/tmp/shop/checkpoints/a.json",
        ".cursor/projects/shop/mcps/a.jsonl",
        ".cursor/chats/0123/one/store.db",
    )
    assert machine(tmp_path).find_transcripts() == []


def test_of_two_forms_of_a_session_one_is_read(tmp_path: Path) -> None:
    kept = placed(
        tmp_path,
        ".codex/sessions/rollout-1.jsonl",
        ".gemini/tmp/shop/chats/session-1.jsonl",
        ".cursor/projects/shop/agent-transcripts/one.jsonl",
    )
    placed(
        tmp_path,
        ".codex/sessions/rollout-1.jsonl.zst",
        ".gemini/tmp/shop/chats/session-1.json",
        ".cursor/projects/shop/agent-transcripts/one.txt",
    )
    assert sorted(names(machine(tmp_path))) == sorted(map(str, kept))


def test_the_editors_conversations_are_found_too(tmp_path: Path) -> None:
    said = {"type": 1, "text": "Hello"}
    connection = opened(folders(tmp_path).cursor_user / "globalStorage" / "state.vscdb")
    put(connection, conversation("c1", said))
    found = machine(tmp_path)
    assert [name.rpartition("#")[2] for name in names(found, "cursor")] == ["c1"]
    put(connection, conversation("c2", said))
    connection.close()
    assert [name.rpartition("#")[2] for name in names(found)] == ["c1", "c2"]


@pytest.mark.parametrize("created", [1_500_000_000_000, 1_800_000_000_000])
def test_of_a_conversation_that_the_editor_has_twice_the_database_comes_first(created: int, tmp_path: Path) -> None:
    [file] = placed(tmp_path, CURSOR)
    connection = opened(folders(tmp_path).cursor_user / "globalStorage" / "state.vscdb")
    put(connection, conversation(SESSION, {"type": 1, "text": "Hello"}, createdAt=created))
    connection.close()
    first, second = machine(tmp_path).find_transcripts()
    assert first.name.endswith(f"#{SESSION}")
    assert second.name == str(file)
    readings = [replayed(transcript).turns.values() for transcript in (first, second)]
    assert [{turn.session for turn in turns} for turns in readings] == [{SESSION}, {SESSION}]
    assert [{turn.reader for turn in turns} for turns in readings] == [{"state"}, {"file"}]


def test_a_database_that_has_not_changed_is_not_gone_through_again(tmp_path: Path) -> None:
    connection = opened(folders(tmp_path).cursor_user / "globalStorage" / "state.vscdb", ahead=True)
    put(connection, conversation("c1", {"type": 1, "text": "Hello"}))
    found = machine(tmp_path)
    [first] = found.find_transcripts()
    [again] = found.find_transcripts()
    assert again is first
    put(connection, conversation("c1", {"type": 1, "text": "Hello"}, {"type": 2, "text": "Hi"}))
    [changed] = found.find_transcripts()
    assert changed is not first
    assert changed.size == 2
    connection.close()


def test_a_file_is_as_large_as_it_was_when_it_was_found(tmp_path: Path) -> None:
    """So that whatever comes later makes it another, and it is looked at once."""
    [path] = placed(tmp_path, CLAUDE)
    size = path.stat().st_size
    [transcript] = machine(tmp_path).find_transcripts()
    path.write_bytes(path.read_bytes() + b"\n")
    assert transcript.size == size
    [transcript] = machine(tmp_path).find_transcripts()
    assert transcript.size == size + 1


def test_a_damaged_database_hides_no_other_transcripts(tmp_path: Path) -> None:
    [path] = placed(tmp_path, CURSOR)
    database = folders(tmp_path).cursor_user / "globalStorage" / "state.vscdb"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"no database" * 100)
    assert set(names(machine(tmp_path))) == {str(path), str(database)}


def test_what_cannot_be_looked_into_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "projects").write_text("no folder", encoding="utf-8")
    (tmp_path / ".gemini").write_text("no folder", encoding="utf-8")
    [path] = placed(tmp_path, CODEX)
    assert names(machine(tmp_path)) == [str(path)]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    [path] = placed(home, CLAUDE)
    placed(tmp_path, "elsewhere/one.jsonl")
    linked(path.parent / "out", tmp_path / "elsewhere")
    linked(path.parent / "around", home / ".claude")
    assert names(machine(home)) == [str(path)]


def test_the_folder_of_a_program_may_be_a_link(tmp_path: Path) -> None:
    placed(tmp_path / "dotfiles", CLAUDE)
    (tmp_path / "home").mkdir()
    linked(tmp_path / "home" / ".claude", tmp_path / "dotfiles" / ".claude")
    assert len(machine(tmp_path / "home").find_transcripts()) == 1


def linked(path: Path, target: Path) -> None:
    if sys.platform == "win32":
        import _winapi

        _winapi.CreateJunction(str(target), str(path))
    else:
        path.symlink_to(target, target_is_directory=True)


def test_a_named_file_is_read_by_the_source_that_is_given(tmp_path: Path) -> None:
    [path] = placed(tmp_path, "any.name")
    [transcript] = machine(tmp_path).find_transcripts(["gemini"], [path])
    assert (transcript.source, transcript.name) == ("gemini", str(path.resolve()))


@pytest.mark.parametrize("sources", [(), ("codex", "gemini", "claude-code", "cursor")])
@pytest.mark.parametrize(
    ("sample", "source"),
    [
        ("claude_code_session.jsonl", "claude-code"),
        ("codex_rollout.jsonl", "codex"),
        ("gemini_session.jsonl", "gemini"),
        ("gemini_session_legacy.json", "gemini"),
        ("cursor_agent_transcript.jsonl", "cursor"),
    ],
)
def test_the_source_of_a_named_file_is_told_by_its_content(
    sample: str, source: str, sources: tuple[str, ...], tmp_path: Path
) -> None:
    [transcript] = machine(tmp_path).find_transcripts(sources, [SAMPLES / sample])
    assert transcript.source == source
    assert replayed(transcript).turns


def test_plain_lines_are_told_by_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('\n{"session": "s", "author": "a", "text": "t"}\n', encoding="utf-8")
    [transcript] = machine(tmp_path).find_transcripts((), [path])
    assert transcript.source == "jsonl"


def test_a_named_database_is_all_of_its_conversations(tmp_path: Path) -> None:
    connection = opened(tmp_path / "copy.vscdb")
    put(connection, conversation("c1", {"type": 1}) | conversation("c2", {"type": 1}))
    connection.close()
    assert len(machine(tmp_path).find_transcripts((), [tmp_path / "copy.vscdb"])) == 2


def test_a_file_of_which_nothing_is_known_needs_its_source(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"note": 1}\nnothing\n', encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        machine(tmp_path).find_transcripts((), [path])
    assert caught.value.facts["allowed"] == list(SOURCES)


def test_a_file_of_another_source_than_those_given_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        machine(tmp_path).find_transcripts(["codex", "gemini"], [SAMPLES / "claude_code_session.jsonl"])


def test_a_source_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        machine(tmp_path).find_transcripts(["claude"])
    assert caught.value.facts["allowed"] == list(SOURCES)


def test_plain_lines_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        machine(tmp_path).find_transcripts(["jsonl"])


@pytest.mark.parametrize("name", ["missing.jsonl", "nul\0.jsonl", "~nobody-of-this-name/x"])
def test_a_file_that_is_not_there_is_not_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        machine(tmp_path).find_transcripts(["jsonl"], [tmp_path / name if name[0] != "~" else Path(name)])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        machine(tmp_path).find_transcripts(["jsonl"], [tmp_path])
