"""Claude Code's transcripts: turns, titles, agents, and formats that changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from everkept.core.transcripts import ASSISTANT, USER, Snippet, Turn
from everkept.transcripts.claude_code import ClaudeCodeFormat
from line_files import jsonl, read, spoken
from transcript_replay import SAMPLES, Replay, expected

SAMPLE = SAMPLES / "claude_code_session.jsonl"
EXPECTED = expected(SAMPLE.name)
SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "66666666-7777-4888-8999-000000000000"


def record(number: int, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = fields.pop("message", {})
    return {
        "type": kind,
        "uuid": f"u{number}",
        "sessionId": SESSION,
        "timestamp": f"2026-03-02T09:00:{number:02}.000Z",
        "cwd": "/home/dev/shop",
        "gitBranch": "main",
        "message": {"role": kind, "content": content, **message},
        **fields,
    }


def asks(number: int, content: Any, **fields: Any) -> dict[str, Any]:
    return record(number, "user", content, **fields)


def answers(number: int, *blocks: Any, message: str | None = None, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    inner = {"id": message or f"m{number}", "model": "model-x"}
    return record(number, "assistant", content, message=inner, **fields)


def uses(tool: str, call: str = "t", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def result(content: Any, call: str = "t", *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}


def taken(folder: Path, *records: Any, name: str = f"{SESSION}.jsonl") -> Replay:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jsonl(*records))
    return read(path, ClaudeCodeFormat)


def turns(kept: Replay) -> list[Turn]:
    return list(kept.turns.values())


def test_the_sample_is_read_as_expected() -> None:
    kept = read(SAMPLE, ClaudeCodeFormat)
    [exchange] = EXPECTED["exchanges"]
    more = EXPECTED["ours_also"]
    people = [t for t in turns(kept) if t.author == USER and not t.part_of and not t.is_summary]
    assert [turn.text for turn in people] == [exchange["user"]]
    assert len(people) == more["human_turns"]
    assert people[0].session == exchange["sessionId"]
    assert people[0].branch == exchange["gitBranch"]
    answered = [turn for turn in turns(kept) if turn.author == ASSISTANT and not turn.is_summary]
    assert [list(turn.tools) for turn in answered] == [exchange["tools"], []]
    assert answered[0].files == ("/home/dev/shop-api/login.py",)
    assert all(turn.project == "/home/dev/shop-api" for turn in turns(kept))
    [code] = more["code_blocks"]
    assert f"```{code['language']}\n{code['text']}\n```" in answered[1].text
    assert sum(turn.is_summary for turn in turns(kept)) == more["compactions"]
    assert len(kept.titles) == more["summary_records"]
    [agent] = [turn for turn in turns(kept) if turn.part_of]
    assert (agent.session, agent.part_of) == (f"{SESSION}/agent-a1b2c3d4", SESSION)
    assert kept.skipped == {"broken line": EXPECTED["bad_lines"]}


def test_an_answer_is_its_text_and_the_tools_that_follow_it(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        asks(1, "Fix it"),
        answers(2, {"type": "thinking", "thinking": "secret thoughts"}, message="m"),
        answers(3, "First.", message="m"),
        answers(4, "Then.", uses("Read", file_path="/a.py"), message="m"),
        asks(5, [result("fine")]),
        answers(6, uses("Grep", path="src", pattern="x"), uses("Read", file_path="/a.py")),
        answers(7, "Done."),
        answers(8, uses("Bash", command="ls")),
    )
    assert spoken(kept) == [(USER, "Fix it"), (ASSISTANT, "First.\n\nThen."), (ASSISTANT, "Done.")]
    first, second = turns(kept)[1:]
    assert (first.key, first.tools, first.files) == ("u3", ("Read", "Grep"), ("/a.py", "src"))
    assert (second.key, second.tools, second.model) == ("u7", ("Bash",), "model-x")
    assert "secret thoughts" not in repr(kept)


def test_tools_before_any_text_wait_for_it(tmp_path: Path) -> None:
    kept = taken(tmp_path, asks(1, "Go"), answers(2, uses("Bash")), answers(3, "Ready."))
    [turn] = turns(kept)[1:]
    assert (turn.key, turn.tools, turn.text) == ("u2", ("Bash",), "Ready.")


def test_what_tools_wrote_is_kept_unless_it_failed(tmp_path: Path) -> None:
    edits = [{"old_string": "c", "new_string": "d"}, {"old_string": "e", "new_string": "f"}]
    kept = taken(
        tmp_path,
        answers(1, "Writing.", uses("Write", file_path="/a.py", content="A = 1")),
        answers(2, uses("Edit", "bad", file_path="/b.py", old_string="a", new_string="b")),
        asks(3, [result("<tool_use_error>No such text</tool_use_error>", "bad", is_error=True)]),
        answers(4, uses("MultiEdit", file_path="/c.py", edits=edits)),
        answers(5, uses("NotebookEdit", notebook_path="/d.ipynb", new_source="x")),
        asks(6, [result([{"type": "text", "text": "Exit 1\n" + "y" * 9_000}], "", is_error=True)]),
    )
    [turn] = turns(kept)
    assert turn.snippets == (
        Snippet("A = 1", "/a.py"),
        Snippet("d", "/c.py", replaced="c"),
        Snippet("f", "/c.py", replaced="e"),
        Snippet("x", "/d.ipynb"),
    )
    assert turn.failures[0] == "No such text"
    assert turn.failures[1].startswith("Exit 1\n")
    assert len(turn.failures[1]) <= 2_000
    assert turn.files == ("/a.py", "/b.py", "/c.py", "/d.ipynb")


@pytest.mark.parametrize(
    "content",
    [
        [result("done")],
        "<command-name>/compact</command-name>\n<command-message>compact</command-message>",
        "<local-command-stdout>Bye!</local-command-stdout>",
        "<local-command-stdout>cut off",
        "<system-reminder>Be brief.</system-reminder>",
        "<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>",
        "[Request interrupted by user for tool use]",
        [{"type": "image", "source": {}}],
        [result("The user doesn't want to proceed with this tool use.", is_error=True)],
        "   ",
        None,
        7,
    ],
)
def test_what_no_person_said_is_no_turn(content: Any, tmp_path: Path) -> None:
    assert taken(tmp_path, asks(1, content), asks(2, "real", isMeta=True)).turns == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<system-reminder>x</system-reminder>\nShip it", "Ship it"),
        ([{"type": "text", "text": "Ship"}, {"type": "text", "text": "it"}], "Ship\n\nit"),
        ("Ship it\n<ide_selection>code</ide_selection>", "Ship it"),
        ("<command-name>/fix</command-name><command-args>the cart</command-args>", "/fix the cart"),
        ("What does <command-name> mean?", "What does <command-name> mean?"),
        ("<div>Why is this centred?</div>", "<div>Why is this centred?</div>"),
    ],
)
def test_a_persons_words_are_taken_out_of_their_wrappers(content: Any, words: str, tmp_path: Path) -> None:
    assert spoken(taken(tmp_path, asks(1, content))) == [(USER, words)]


def test_what_a_person_says_to_a_running_assistant_is_kept(tmp_path: Path) -> None:
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": "Also the docs"}
    refused = "The user doesn't want to proceed. To tell you how to proceed, the user said:\nNo: UTC"
    kept = taken(
        tmp_path,
        answers(1, "Editing.", uses("Edit", file_path="/a", old_string="a", new_string="b")),
        asks(2, [result(refused, is_error=True)]),
        {**record(3, "attachment", None), "attachment": queued},
        {**record(4, "attachment", None), "attachment": {"type": "todo", "prompt": "no"}},
    )
    assert spoken(kept) == [(ASSISTANT, "Editing."), (USER, "No: UTC"), (USER, "Also the docs")]
    assert (turns(kept)[0].snippets, turns(kept)[0].failures) == ((), ())


def test_the_programs_own_lines_are_no_answers(tmp_path: Path) -> None:
    synthetic = record(1, "assistant", "No response requested.", message={"model": "<synthetic>"})
    broken = answers(2, "API Error: overloaded", isApiErrorMessage=True)
    assert taken(tmp_path, synthetic, broken).turns == {}


def test_a_conversation_stays_in_the_folder_it_began_in(tmp_path: Path) -> None:
    kept = taken(tmp_path, asks(1, "a"), answers(2, "b", cwd="/home/dev/shop/docs"))
    assert {turn.project for turn in turns(kept)} == {"/home/dev/shop"}


@pytest.mark.parametrize("name", ["agent-a1.jsonl", f"{SESSION}/subagents/agent-a1.jsonl"])
def test_a_file_of_an_agent_is_part_of_the_session_that_sent_it(name: str, tmp_path: Path) -> None:
    kept = taken(tmp_path, asks(1, "Look"), answers(2, "Found."), name=name)
    assert {(t.session, t.part_of) for t in turns(kept)} == {(f"{SESSION}/agent-a1", SESSION)}


def test_an_agent_between_the_lines_of_its_session_has_turns_of_its_own(tmp_path: Path) -> None:
    aside = {"isSidechain": True, "agentId": "a1"}
    kept = taken(
        tmp_path,
        answers(1, "Sending one.", uses("Task")),
        asks(2, "Look", **aside),
        answers(3, "Looking.", uses("Read", file_path="/x"), **aside),
        asks(4, [result("all gone", is_error=True)], **aside),
        asks(5, [result("it found nothing", is_error=True)]),
        answers(6, uses("Bash")),
        asks(7, "Thanks"),
    )
    by_key = kept.turns
    assert by_key["u1"].tools == ("Task", "Bash")
    assert by_key["u1"].failures == ("it found nothing",)
    assert (by_key["u3"].failures, by_key["u3"].part_of) == (("all gone",), SESSION)


def test_titles_come_from_the_program_and_the_users_own_stays(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        {"type": "summary", "summary": "Of another file", "leafUuid": "elsewhere"},
        {"type": "summary", "summary": "An older session", "leafUuid": "u1"},
        asks(1, "a", sessionId=OTHER),
        asks(2, "b"),
        {"type": "ai-title", "aiTitle": "By the program", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": "By the\nuser", "sessionId": SESSION},
        {"type": "ai-title", "aiTitle": "Again", "sessionId": SESSION},
    )
    assert kept.titles == {OTHER: "An older session", SESSION: "By the user"}


def test_unknown_records_and_blocks_are_counted(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        {"type": "hologram"},
        {"type": "progress"},
        {"type": ["user"]},
        {"type": "summary"},
        answers(1, "Hi.", {"type": "smell"}, "there"),
        *({"type": f"kind {n}"} for n in range(100)),
    )
    assert spoken(kept) == [(ASSISTANT, "Hi.\n\nthere")]
    assert kept.skipped["unknown record: hologram"] == 1
    assert kept.skipped["unknown block: smell"] == 1
    assert kept.skipped["wrong shape"] == 2
    assert kept.skipped.total() == 104
    assert len(kept.skipped) < 50


MARKER = "<!-- everkept: do not index -->"


@pytest.mark.parametrize(
    "line",
    [
        asks(2, f"Hello <system-reminder>{MARKER}</system-reminder>"),
        asks(2, MARKER, isMeta=True),
        asks(2, [result(f"CLAUDE.md: {MARKER}")]),
        {"type": "progress", "data": MARKER},
        {"type": "hologram", "sessionId": SESSION, "data": {"deep": [MARKER]}},
    ],
)
def test_a_marker_counts_outside_of_words_too(line: Any, tmp_path: Path) -> None:
    assert taken(tmp_path, asks(1, "Hello"), line, answers(3, "Hi")).marked == {SESSION}


def test_a_marker_waits_for_a_conversation_to_be_of(tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_bytes(jsonl({"type": "summary", "summary": MARKER, "leafUuid": "u9"}))
    kept = read(path, ClaudeCodeFormat)
    assert kept.marked == set()
    path.write_bytes(path.read_bytes() + jsonl(asks(1, "Hello")))
    assert read(path, ClaudeCodeFormat, kept.mark).marked == {SESSION}


def test_a_marker_is_of_the_agent_that_met_it(tmp_path: Path) -> None:
    met = asks(2, MARKER, isMeta=True, isSidechain=True, agentId="a1")
    assert taken(tmp_path, asks(1, "Hello"), met).marked == {f"{SESSION}/agent-a1"}


def test_a_path_that_is_none_is_left_out_and_counted(tmp_path: Path) -> None:
    edits = [{"old_string": "a", "new_string": f"b{n}"} for n in range(3)]
    kept = taken(tmp_path, answers(1, uses("MultiEdit", file_path="/x" * 501, edits=edits)))
    [turn] = turns(kept)
    assert turn.files == ()
    assert turn.snippets == tuple(Snippet(f"b{n}", replaced="a") for n in range(3))
    assert kept.skipped == {"path over 1,000 characters": 4}


def test_what_stands_in_place_of_a_name_is_not_shown(tmp_path: Path) -> None:
    unnamed = answers(1, {"type": "a secret"})
    kept = taken(tmp_path, {"type": "my password is hunter2"}, unnamed)
    assert kept.skipped == {"unknown record": 1, "unknown block": 1}


def test_a_turn_without_end_stays_within_bounds(tmp_path: Path) -> None:
    big = uses("Write", file_path="/a.py", content="é" * 500_000)
    kept = taken(tmp_path, *(answers(n, big, message="m") for n in range(1, 9)))
    [turn] = turns(kept)
    assert sum(len(snippet.text) for snippet in turn.snippets) == 2_000_000
    assert kept.skipped["rest of a very long turn"] == 4


def test_a_mark_holds_nothing_that_was_said(tmp_path: Path) -> None:
    kept = taken(
        tmp_path,
        {"type": "summary", "summary": "hunter2", "leafUuid": "elsewhere"},
        asks(1, "hunter2"),
        answers(2, "hunter2", uses("Write", file_path="/a", content="hunter2")),
    )
    assert "hunter2" not in json.dumps(kept.mark)
