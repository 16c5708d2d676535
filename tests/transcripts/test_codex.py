"""Codex CLI's transcripts: turns, patches, failures, and older versions' files."""

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.core.transcripts import ASSISTANT, USER, Snippet, Turn
from recollect.transcripts.codex import CodexFormat
from replaying import SAMPLES, Replay, expected
from rereading import jsonl, read, spoken

SAMPLE = SAMPLES / "codex_rollout.jsonl"
EXPECTED = expected(SAMPLE.name)
SESSION = "019c0000-0000-7000-8000-000000000001"
NAME = f"rollout-2026-03-02T10-00-00-{SESSION}.jsonl"

PATCH = """*** Begin Patch
*** Add File: src/cart.py
+LIMIT = 5
+
*** Update File: src/shop.py
*** Move to: src/store.py
@@ def total():
 def total():
-    return 1
+    return 2
@@
-old
*** Delete File: src/gone.py
*** End Patch"""


def line(number: int, kind: str, payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-02T10:00:{number:02}.000Z", "type": kind, "payload": payload}


def item(number: int, kind: str, **fields: Any) -> dict[str, Any]:
    return line(number, "response_item", {"type": kind, **fields})


def message(number: int, role: str, *texts: str) -> dict[str, Any]:
    return item(number, "message", role=role, content=[{"type": "t", "text": t} for t in texts])


def meta(number: int = 0, **fields: Any) -> dict[str, Any]:
    return line(number, "session_meta", {"id": SESSION, "cwd": "/home/dev/shop", **fields})


def call(number: int, name: str, arguments: Any, call_id: str = "c") -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return item(number, "function_call", name=name, arguments=raw, call_id=call_id)


def output(number: int, said: Any, call_id: str = "c") -> dict[str, Any]:
    return item(number, "function_call_output", call_id=call_id, output=said)


def taken(folder: Path, *records: Any, name: str = NAME) -> Replay:
    path = folder / name
    path.write_bytes(jsonl(*records))
    return read(path, CodexFormat)


def turns(kept: Replay) -> list[Turn]:
    return list(kept.turns.values())


def test_the_sample_is_read_as_expected() -> None:
    kept = read(SAMPLE, CodexFormat)
    [exchange] = EXPECTED["exchanges"]
    asked, answered, summary = turns(kept)
    assert (asked.author, asked.text) == (USER, exchange["user"])
    assert (answered.author, list(answered.tools)) == (ASSISTANT, exchange["tools"])
    assert answered.text == "The fixture uses a naive datetime; make it UTC."
    assert (answered.model, answered.project) == ("model-y", "/home/dev/shop-api")
    assert (summary.author, summary.is_summary) == (ASSISTANT, True)
    assert {turn.session for turn in turns(kept)} == {exchange["sessionId"]}
    assert {turn.branch for turn in turns(kept)} == {exchange["gitBranch"]}
    assert kept.skipped == {}


def test_an_answer_is_its_text_and_the_tools_that_follow_it(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        meta(),
        message(1, "user", "Why?"),
        message(2, "developer", "not said"),
        call(3, "exec_command", {"cmd": "ls"}),
        message(4, "assistant", "Because."),
        item(5, "local_shell_call", action={"command": ["ls"]}),
        item(6, "web_search_call", action={"query": "x"}),
        message(7, "assistant", "Done."),
    )
    assert spoken(kept) == [(USER, "Why?"), (ASSISTANT, "Because."), (ASSISTANT, "Done.")]
    assert turns(kept)[1].tools == ("exec_command", "local_shell", "web_search")


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
        "<user_instructions>\nBe brief.\n</user_instructions>",
        "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "<permissions instructions>All.</permissions instructions>",
        "<turn_aborted>\n",
    ],
)
def test_what_the_program_says_for_a_person_is_no_turn(text: str, tmp_path: Path) -> None:
    kept = taken(tmp_path, meta(), message(1, "user", text), message(2, "user", text, "Go"))
    assert spoken(kept) == [(USER, "Go")]


def test_what_an_editor_says_about_itself_is_left_out(tmp_path: Path) -> None:
    text = "# Context from my IDE setup:\n## Active file: a.py\n## My request for Codex:\nGo on\n"
    assert spoken(taken(tmp_path, message(1, "user", text))) == [(USER, "Go on")]


@pytest.mark.parametrize(
    "called",
    [
        item(1, "custom_tool_call", name="apply_patch", input=PATCH, call_id="c"),
        call(1, "shell", {"command": ["apply_patch", PATCH]}),
        call(1, "shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"]}),
        call(1, "apply_patch", {"input": PATCH}),
    ],
)
def test_a_patch_is_files_and_what_was_written_into_them(called: Any, tmp_path: Path) -> None:
    [turn] = turns(taken(tmp_path, meta(), called))
    assert turn.files == ("src/cart.py", "src/shop.py", "src/store.py", "src/gone.py")
    assert turn.snippets == (
        Snippet("LIMIT = 5", "src/cart.py"),
        Snippet(
            "def total():\n    return 2", "src/store.py", replaced="def total():\n    return 1"
        ),
    )


FAILED = json.dumps({"output": "boom", "metadata": {"exit_code": 2, "duration_seconds": 1}})


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (FAILED, "boom"),
        (json.loads(FAILED), "boom"),
        ({"content": "no such file", "success": False}, "no such file"),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nboom", "Exit code: 1\nboom"),
        (
            "Chunk ID: 1\nProcess exited with code 3\nOutput:\nboom",
            "Process exited with code 3\nboom",
        ),
        ("x" * 500 + "\nExit code: 1", None),
        (json.dumps({"output": "fine", "metadata": {"exit_code": 0}}), None),
        ("Exit code: 0\nOutput:\nfine", None),
        ("1 failed", None),
        (None, None),
        (json.dumps([{"type": "text", "text": "fine"}]), None),
    ],
)
def test_a_command_that_failed_says_so(said: Any, failure: str | None, tmp_path: Path) -> None:
    patch = {"command": ["apply_patch", PATCH]}
    [turn] = turns(taken(tmp_path, meta(), call(1, "shell", patch), output(2, said)))
    assert turn.failures == ((failure,) if failure else ())
    assert bool(turn.snippets) is (failure is None)


def test_a_file_that_goes_on_from_another_session_is_its_own(tmp_path: Path) -> None:
    older = message(1, "user", "Before")
    first = taken(tmp_path, meta(id="older"), older, name="rollout-a.jsonl")
    second = taken(tmp_path, meta(), meta(id="older", cwd="/elsewhere"), older)
    assert list(second.turns) == list(first.turns)
    assert [(turn.session, turn.project) for turn in turns(second)] == [(SESSION, "/home/dev/shop")]


def test_an_agent_is_part_of_the_session_that_sent_it(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}}
    for fields in ({"source": source}, {"source": "exec", "parent_thread_id": "parent"}):
        [turn] = turns(taken(tmp_path, meta(**fields), message(1, "user", "Look")))
        assert turn.part_of == "parent"
    [turn] = turns(taken(tmp_path, meta(source={"subagent": "review"}), message(1, "user", "Look")))
    assert turn.part_of is None


def test_without_a_first_line_the_files_name_tells_the_session(tmp_path: Path) -> None:
    [turn] = turns(taken(tmp_path, message(1, "user", "Hello")))
    assert (turn.session, turn.project) == (SESSION, None)


def test_older_versions_wrote_the_items_themselves(tmp_path: Path) -> None:
    text = [{"type": "input_text", "text": "Again"}]
    kept = taken(
        tmp_path,
        {"id": "old", "timestamp": "2025-05-01T10:00:00.000Z", "git": {"branch": "dev"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": text},
        {"type": "message", "role": "user", "content": text},
    )
    assert spoken(kept) == [(USER, "Again"), (USER, "Again")]
    assert {(turn.session, turn.branch) for turn in turns(kept)} == {("old", "dev")}
    assert kept.skipped == {}


def test_prompts_that_were_taken_back_are_gone(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        meta(),
        message(1, "user", "one"),
        message(2, "user", "two"),
        message(3, "assistant", "answer"),
        message(4, "user", "three"),
        line(5, "event_msg", {"type": "thread_rolled_back", "num_turns": 2}),
        message(6, "user", "four"),
    )
    assert spoken(kept) == [(USER, "one"), (USER, "four")]


def test_unknown_lines_and_items_are_counted(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        line(1, "hologram", {}),
        item(2, "smell"),
        item(3, "reasoning"),
        line(4, "event_msg", {"type": "token_count"}),
        line(5, "compacted", {"message": ""}),
        {"neither": "nor"},
    )
    assert (kept.turns, kept.skipped) == (
        {},
        {"unknown record: hologram": 1, "unknown item: smell": 1, "wrong shape": 1},
    )


def test_a_mark_holds_nothing_that_was_said(tmp_path: Path) -> None:
    asked, patch = message(1, "user", "hunter2"), call(2, "shell", {"command": ["hunter2"]})
    kept = taken(tmp_path, meta(), asked, patch, message(3, "assistant", "hunter2"))
    assert "hunter2" not in json.dumps(kept.mark)


def test_half_characters_inside_arguments_can_be_stored(tmp_path: Path) -> None:
    arguments = '{"path": "a.py", "content": "half \\ud800\\u0000"}'
    [turn] = turns(taken(tmp_path, meta(), call(1, "write_file", arguments)))
    assert turn.snippets == (Snippet("half ?", "a.py"),)
