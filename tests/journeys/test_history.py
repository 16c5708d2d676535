"""Past conversations, as a person meets them: the command reads them, an assistant asks."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hook_workers import past
from server_processes import StdioServer, command, environment, stdio_server

SAMPLES = Path(__file__).parents[1] / "transcripts" / "samples"
MANY = 600  # turns: enough for an import to be killed in the middle


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where Claude Code has kept two conversations, one of them long."""
    folder = tmp_path / "home" / ".claude" / "projects" / "-home-dev-shop-api"
    folder.mkdir(parents=True)
    session = "11111111-2222-4333-8444-555555555555"
    (folder / f"{session}.jsonl").write_bytes((SAMPLES / "claude_code_session.jsonl").read_bytes())
    lines = [json.dumps(said(number)) for number in range(MANY)]
    (folder / "long.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "home"


def said(number: int) -> dict[str, Any]:
    is_user = number % 2 == 0
    text = f"Turn {number} is about the {('cache', 'queue', 'login')[number % 3]} of service {number}."
    code = f"\n\n```python\ndef handle_{number}():\n    return check_{number // 10}()\n```"
    content = text if is_user else [{"type": "text", "text": text + code}]
    role = "user" if is_user else "assistant"
    return {
        "type": role,
        "uuid": f"uuid-{number}",
        "sessionId": "long",
        "timestamp": f"2026-03-{1 + number // 60:02}T10:{number % 60:02}:00.000Z",
        "cwd": "/home/dev/shop-api",
        "message": {"role": role, "content": content, "id": f"msg-{number}"},
    }


def variables(home: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment().items()
        if name not in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
    }
    return kept | {"HOME": str(home), "USERPROFILE": str(home)}


def importing(home: Path, data: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command("import", "history", "--json", "--data-dir", data),
        env=variables(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def imported(home: Path, data: Path) -> dict[str, Any]:
    process = importing(home, data)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)["total"]


async def test_an_import_that_is_killed_again_and_again_ends_as_if_it_never_was(home: Path, tmp_path: Path) -> None:
    whole = imported(home, tmp_path / "whole")
    assert whole["turns"] == MANY + 5
    data = tmp_path / "killed"
    kills = 0
    for _ in range(60):
        process = importing(home, data)
        assert process.stderr is not None
        try:
            process.wait(timeout=0.45 * 1.1**kills)
        except subprocess.TimeoutExpired:
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            process.communicate()
            kills += 1
        else:
            process.communicate()
            break
    imported(home, data)  # on a slow machine none of them came to its end
    assert imported(home, data)["turns"] == 0
    assert await past(data) == await past(tmp_path / "whole")


async def test_two_imports_at_once_take_each_turn_in_once(home: Path, tmp_path: Path) -> None:
    imported(home, tmp_path / "whole")
    data = tmp_path / "both"
    both = [importing(home, data), importing(home, data)]
    totals: list[int] = []
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        totals.append(json.loads(out)["total"]["turns"])
    assert sum(totals) == MANY + 5
    assert await past(data) == await past(tmp_path / "whole")


def recall(server: StdioServer, query: str, **more: Any) -> list[dict[str, Any]]:
    return server.call("recall_previous_discussions", query=query, **more)["results"]


def test_an_assistant_finds_what_is_imported_while_it_is_connected(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with stdio_server(data) as server:
        nothing = server.call("recall_previous_discussions", query="rate limiting for logins")
        assert nothing["results"] == []
        assert nothing["warnings"][0]["code"] == "no_history"
        imported(home, data)
        # On a busy machine its embedding may come later, and then another turn is the first.
        decided = "We decided on a token bucket with 5 attempts per minute."
        [found] = [hit for hit in recall(server, "rate limiting for logins") if hit["content"].startswith(decided)]
        assert found["context"]["before"] == "Add rate limiting to the login endpoint"
        assert found["context"]["project_path"] == "/home/dev/shop-api"
        page = server.call("read_conversation", id=found["id"])
        assert any("token bucket" in turn["text"] for turn in page["turns"])
        # A transcript that grows is followed by the next import, and the known answer is dropped.
        path = next((home / ".claude").rglob("long.jsonl"))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(said(MANY) | {"uuid": "new"}) + "\n")
        before = recall(server, f"service {MANY}")
        imported(home, data)
        after = recall(server, f"service {MANY}")
        assert f"Turn {MANY} " in after[0]["content"]
        assert before != after


def test_names_of_the_original_are_understood_and_searches_are_shown(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    imported(home, data)
    with stdio_server(data) as server:
        listed = {tool["name"] for tool in server.ask(1, "tools/list")["result"]["tools"]}
        aliases = {"search_memory", "find_past_conversations", "retrieve_memory_chunk"}
        assert not listed & aliases
        for alias in ("search_memory", "find_past_conversations"):
            found = server.call(alias, query="token bucket", type="decision")["results"]
            assert [result["type"] for result in found] == ["decision"]
        chunk = server.call("retrieve_memory_chunk", chunk_id=found[0]["id"])
        assert len(chunk["turns"]) == 1
        answer = server.ask(2, "resources/read", uri="memory://session/summary")
        contents = answer["result"]["contents"]
        assert "**Past conversations searched:** 2 times" in contents[0]["text"]
        assert "recall_previous_discussions: token bucket" in contents[0]["text"]
