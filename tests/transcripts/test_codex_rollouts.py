"""Codex CLI's transcripts: turns, patches, failures, and older versions' files."""

import json
from pathlib import Path
from typing import Any

import pytest

from everkept.core.transcripts import ASSISTANT, USER, Snippet, Turn
from everkept.transcripts.codex import CodexFormat
from line_files import jsonl, read, spoken
from transcript_replay import SAMPLES, Replay, expected

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
        Snippet("def total():\n    return 2", "src/store.py", replaced="def total():\n    return 1"),
    )


FAILED = json.dumps({"output": "boom", "metadata": {"exit_code": 2, "duration_seconds": 1}})


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (FAILED, "boom"),
        (json.loads(FAILED), "boom"),
        ({"content": "no such file", "success": False}, "no such file"),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nboom", "Exit code: 1\nboom"),
        ("Chunk ID: 1\nProcess exited with code 3\nOutput:\nboom", "Process exited with code 3\nboom"),
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


def later(number: int, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Copies, which have the time at which they were copied."""
    return [{**each, "timestamp": f"2026-03-03T10:00:{number:02}.000Z"} for each in records]


def test_a_fork_has_the_turns_of_its_original_whenever_it_was_copied(tmp_path: Path) -> None:
    said = [
        message(1, "user", "Go on"),
        message(2, "assistant", "Looking."),
        call(3, "shell", {"cmd": "ls"}),
        message(4, "assistant", "Looking."),
        message(5, "user", "Go on"),
        message(6, "assistant", "Looking."),
    ]
    first = taken(tmp_path, meta(id="one"), *said, name="rollout-a.jsonl")
    assert len(first.turns) == 5
    metas = [meta(id="two", forked_from_id="one"), meta(id="one")]
    copied = later(1, *metas, *said)
    second = taken(tmp_path, *copied, message(9, "user", "Fork"), name="rollout-b.jsonl")
    assert list(second.turns)[:5] == list(first.turns)
    assert len(second.turns) == 6
    metas = [meta(id="three", forked_from_id="two"), *metas]
    third = taken(tmp_path, *later(2, *metas, *said), name="rollout-c.jsonl")
    assert list(third.turns) == list(first.turns)


def test_equal_words_in_two_sessions_are_not_the_same_turns(tmp_path: Path) -> None:
    said = [message(1, "user", "Hello"), message(2, "assistant", "Hi")]
    first = taken(tmp_path, meta(id="one"), *said, name="rollout-a.jsonl")
    second = taken(tmp_path, meta(id="two"), *said, name="rollout-b.jsonl")
    assert first.turns.keys().isdisjoint(second.turns)


def test_an_id_is_the_key_where_it_can_be_the_only_one_of_its_kind(tmp_path: Path) -> None:
    unique, dice = "msg_0123456789abcdef", "msg_7"
    for number, own in enumerate((unique, dice)):
        answer = item(2, "message", role="assistant", id=own, content="Yes")
        first = taken(tmp_path, meta(id="one"), answer, name=f"rollout-a{number}.jsonl")
        second = taken(tmp_path, meta(id="two"), answer, name=f"rollout-b{number}.jsonl")
        assert (list(first.turns) == list(second.turns)) is (own == unique)


def test_a_prompt_that_is_taken_back_leaves_the_keys_as_they_were(tmp_path: Path) -> None:
    back = line(5, "event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    first, wrong, right = (message(n, "user", f"prompt {n}") for n in range(3))
    with_detour = taken(tmp_path, meta(), first, wrong, back, right)
    assert list(with_detour.turns) == list(taken(tmp_path, meta(), first, right).turns)


def test_the_state_stays_small_however_long_an_answer_is(tmp_path: Path) -> None:
    answers = [message(2, "assistant", f"step {n % 700}") for n in range(2_000)]
    kept = taken(tmp_path, meta(), message(1, "user", "Go"), *answers)
    assert len(kept.turns) == 2_001
    assert len(json.dumps(kept.mark)) < 8_000


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


def test_what_stands_in_place_of_a_name_is_not_shown(tmp_path: Path) -> None:
    said = "my password is hunter2"
    kinds = [line(1, said, {}), item(2, said), *(line(3, f"kind-{n}", {}) for n in range(99))]
    kept = taken(tmp_path, *kinds)
    assert (kept.skipped["unknown record"], kept.skipped["unknown item"]) == (1, 1)
    assert "hunter2" not in json.dumps(kept.skipped)
    assert len(kept.skipped) <= 30
    assert kept.skipped.total() == 101


def test_a_mark_holds_nothing_that_was_said(tmp_path: Path) -> None:
    asked, patch = message(1, "user", "hunter2"), call(2, "shell", {"command": ["hunter2"]})
    kept = taken(tmp_path, meta(), asked, patch, message(3, "assistant", "hunter2"))
    assert "hunter2" not in json.dumps(kept.mark)


def test_half_characters_inside_arguments_can_be_stored(tmp_path: Path) -> None:
    arguments = '{"path": "a.py", "content": "half \\ud800\\u0000"}'
    [turn] = turns(taken(tmp_path, meta(), call(1, "write_file", arguments)))
    assert turn.snippets == (Snippet("half ?", "a.py"),)
