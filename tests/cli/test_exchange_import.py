import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_processes import command, environment

Run = Callable[..., Any]

SAMPLES = Path(__file__).parents[1] / "transcripts" / "samples"
UUID = "55555555-6666-4777-8888-999999999999"


def test_a_file_of_the_official_server_is_taken_in_once(everkept: Run, tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["x"]},
        {"type": "relation", "from": "Ada", "to": "Ghost", "relationType": "sees"},
    ]
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{broken", encoding="utf-8")
    before = path.read_bytes()
    first = everkept("import", "server-memory", str(path), "--json").json
    assert (first["entities"], first["observations"], first["relations"]) == (1, 1, 1)
    assert [item["line"] for item in first["unreadable"]] == [3]
    again = everkept("import", "server-memory", str(path))
    assert "Added 0 entities, 0 observations and 0 relations to default." in again.out
    assert "line 3" in again.err
    assert path.read_bytes() == before
    into = everkept("import", "server-memory", str(path), "--project", "shop", "--json").json
    assert into["entities"] == 1
    names = [p["name"] for p in everkept("list-projects", "--json").json["projects"]]
    assert names == ["default", "shop"]


def test_a_missing_file_is_the_callers_mistake(everkept: Run, tmp_path: Path) -> None:
    assert everkept("import", "server-memory", str(tmp_path / "none")).status == 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(place))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    places = {
        "claude_code_session.jsonl": ".claude/projects/-home-dev-shop-api/1111.jsonl",
        "codex_rollout.jsonl": ".codex/sessions/2026/03/02/rollout-1.jsonl",
        "gemini_session.jsonl": ".gemini/tmp/abc/chats/session-1.jsonl",
        "gemini_session_legacy.json": ".gemini/tmp/abc/chats/session-0.json",
        "cursor_agent_transcript.jsonl": f".cursor/projects/s/agent-transcripts/{UUID}/a.jsonl",
    }
    for sample, name in places.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((SAMPLES / sample).read_bytes())
    return place


def test_conversations_of_every_program_are_found_and_read_once(everkept: Run, home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    first = everkept("import", "history", "--json").json
    assert set(first["sources"]) == {"claude-code", "codex", "gemini", "cursor"}
    assert first["failures"] == []
    assert first["total"]["turns"] == 14
    again = everkept("import", "history")
    assert "Read 0 of 5 transcripts (5 unchanged)" in again.out
    only = everkept("import", "history", "--source", "codex", "--json").json
    assert set(only["sources"]) == {"codex"}
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_what_is_older_comes_in_when_it_is_asked_for(everkept: Run, home: Path) -> None:
    since = ("import", "history", "--since", "2026-03-02T10:30:00Z", "--json")
    early = everkept(*since).json["total"]["turns"]
    assert 0 < early < 14
    assert everkept("import", "history", "--json").json["total"]["turns"] == 14 - early


def test_with_its_vectors_at_once_nothing_waits(everkept: Run, home: Path) -> None:
    outcome = everkept("import", "history", "--source", "codex", "--embed")
    assert "found by meaning" not in outcome.out
    assert everkept("index").out == "Nothing was waiting.\n"


def test_no_conversations_are_said_to_be_none(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "nobody"))
    assert "No conversations were found" in everkept("import", "history").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--source", "aol"),
        ("--source", "jsonl"),
        ("--since", "once upon a time"),
        ("--source", "jsonl", "missing.jsonl"),
    ],
)
def test_an_import_that_makes_no_sense_is_refused(everkept: Run, home: Path, arguments: tuple[str, ...]) -> None:
    outcome = everkept("import", "history", *arguments)
    assert outcome.status == 2
    assert outcome.err.startswith("everkept: ")


def test_a_named_file_that_cannot_be_read_is_no_success(everkept: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("no JSON at all\n", encoding="utf-8")
    outcome = everkept("import", "history", "--source", "jsonl", str(path))
    assert outcome.status == 1
    assert "nothing in it could be read" in outcome.err


def test_what_comes_while_somebody_watches_is_taken_in(home: Path, tmp_path: Path) -> None:
    kept = {k: v for k, v in environment().items() if k not in ("CODEX_HOME", "XDG_CONFIG_HOME")}
    watching = subprocess.Popen(
        command("import", "history", "--watch", "--data-dir", tmp_path / "data"),
        env=kept | {"HOME": str(home), "USERPROFILE": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert watching.stdout is not None
    try:
        assert "14 new turns" in watching.stdout.readline()
        watching.stdout.readline()  # about vectors
        path = next((home / ".codex").rglob("*.jsonl"))
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hm."}]}
        with path.open("a", encoding="utf-8") as file:
            line = {"timestamp": "2026-03-02T11:00:00Z", "type": "response_item", "payload": said}
            file.write(json.dumps(line) + "\n")
        assert "1 new turn" in watching.stdout.readline()
    finally:
        watching.kill()  # a process group in the background may ignore anything softer
        watching.wait()
        watching.stdout.close()
