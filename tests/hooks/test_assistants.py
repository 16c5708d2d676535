import json
from pathlib import Path
from typing import Any

import pytest

from everkept.errors import InvalidInput
from everkept.hooks.assistants import detect_client, format_for, get_assistant, rename_facts
from everkept.hooks.events import HookAnswer, build_event, is_foreign
from everkept.hooks.shell_commands import CommandOutcome, extract_error_lines, find_outcome

ANSWER = HookAnswer(context="Logins are limited.", notice="One bank is new.")
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: b c.md\n+z\n*** End Patch\n"


def test_an_unknown_client_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(InvalidInput) as refused:
        get_assistant("netscape")
    assert "cursor" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (
            "codex",
            {
                "systemMessage": ANSWER.notice,
                "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": ANSWER.context},
            },
        ),
        (
            "gemini",
            {
                "systemMessage": ANSWER.notice,
                "hookSpecificOutput": {"hookEventName": "BeforeAgent", "additionalContext": ANSWER.context},
            },
        ),
        ("cursor", {"user_message": ANSWER.notice, "additional_context": ANSWER.context}),
        (
            "copilot",
            {
                "systemMessage": ANSWER.notice,
                "additionalContext": ANSWER.context,
                "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": ANSWER.context},
            },
        ),
    ],
)
def test_each_client_gets_the_answer_in_its_own_form(client: str, said: dict[str, Any]) -> None:
    assert json.loads(format_for(client, "UserPromptSubmit", ANSWER)) == said
    assert format_for(client, "UserPromptSubmit", None) == b""


@pytest.mark.parametrize(
    ("facts", "client"),
    [
        ({"conversation_id": "c", "session_id": "c"}, "cursor"),
        ({"sessionId": "s", "hookEventName": "SessionStart"}, "copilot"),
    ],
)
def test_a_hook_of_claude_code_that_another_client_runs_is_recognized(facts: dict[str, Any], client: str) -> None:
    assert is_foreign(facts)
    assert detect_client(facts) == client
    assert not is_foreign({"session_id": "s", "cwd": "/w", "hook_event_name": "Stop"})


@pytest.mark.parametrize(
    ("client", "facts", "known"),
    [
        ("copilot", {"sessionId": "s", "hookEventName": "sessionStart"}, {"hook_event_name": "SessionStart"}),
        ("copilot", {"sessionId": "s", "transcriptPath": "/w/t"}, {"session_id": "s"}),
        ("cursor", {"conversation_id": "c", "workspace_roots": ["/w", "/x"]}, {"session_id": "c", "cwd": "/w"}),
        ("cursor", {"conversation_id": "c", "workspace_roots": ["/c:/w"]}, {"cwd": "c:/w"}),
        ("cursor", {"conversation_id": "c", "workspace_roots": []}, {"cwd": ""}),
        ("cursor", {"session_id": "s", "conversation_id": "c", "cwd": "/w"}, {"session_id": "s", "cwd": "/w"}),
        ("cursor", {"error_message": "boom"}, {"error": "boom"}),
        ("copilot", {"error": {"name": "Error", "message": "boom"}}, {"error": "boom"}),
        ("gemini", {"prompt": "<hook_context>a\nb</hook_context>\n\nhello <b>"}, {"prompt": "hello <b>"}),
        ("gemini", {"hook_event_name": "AfterTool"}, {"hook_event_name": "PostToolUse"}),
    ],
)
def test_fields_get_the_names_of_claude_code(client: str, facts: dict[str, Any], known: dict[str, Any]) -> None:
    renamed = rename_facts(client, facts)
    assert renamed == renamed | known
    assert "transcript_path" not in renamed


@pytest.mark.parametrize(
    ("client", "tool", "told", "name", "files"),
    [
        ("codex", "apply_patch", {"command": PATCH}, "Edit", ["src/a.py", "b c.md"]),
        ("copilot", "apply_patch", PATCH, "Edit", ["src/a.py", "b c.md"]),
        ("copilot", "create", '{"path": "a.py"}', "Write", ["a.py"]),
        ("copilot", "replace_string_in_file", {"filePath": "/w/a.py"}, "Edit", ["/w/a.py"]),
        (
            "copilot",
            "multi_replace_string_in_file",
            {"replacements": [{"filePath": "a.py"}, {"filePath": "b.py"}, {"filePath": "a.py"}, 1]},
            "Edit",
            ["a.py", "b.py"],
        ),
        ("cursor", "Write", {"file_path": "a.py"}, "Write", ["a.py"]),
        ("cursor", "StrReplace", {"target_file": "a.py"}, "Edit", ["a.py"]),
        ("gemini", "write_file", {"file_path": "a.py"}, "Write", ["a.py"]),
        ("gemini", "replace", {"file_path": 1}, "Edit", []),
        ("gemini", "replace", "{not JSON", "Edit", []),
    ],
)
def test_an_edit_names_its_files(client: str, tool: str, told: Any, name: str, files: list[str]) -> None:
    event = build_event("PostToolUse", rename_facts(client, {"toolName": tool, "toolArgs": told}))
    assert (event.tool, event.tool_input["file_paths"]) == (name, files)


GEMINI_OUTPUT = "<untrusted_context>\nOutput: {}\nExit Code: {}\nProcess Group PGID: 9553\n</untrusted_context>"
COPILOT_OUTPUT = "{}\n<shellId: 0 completed with exit code {}>"
OLDER_GEMINI_OUTPUT = "Command: pytest\nOutput: {}\nError: (none)\nExit Code: {}\nSignal: (none)"


@pytest.mark.parametrize(
    ("client", "facts", "failed"),
    [
        ("gemini", {"tool_response": {"llmContent": GEMINI_OUTPUT.format("no module", 1), "returnDisplay": "x"}}, True),
        ("gemini", {"tool_response": {"llmContent": OLDER_GEMINI_OUTPUT.format("no module", 1)}}, True),
        ("gemini", {"tool_response": {"llmContent": OLDER_GEMINI_OUTPUT.format("fine", 0)}}, False),
        ("gemini", {"tool_response": {"llmContent": "no module", "error": {"message": "x"}}}, True),
        ("gemini", {"tool_response": {"llmContent": [{"text": "fine"}]}}, False),
        ("copilot", {"toolResult": {"resultType": "failure", "textResultForLlm": "no module"}}, True),
        ("copilot", {"toolResult": {"resultType": "success", "textResultForLlm": "fine"}}, False),
        ("copilot", {"tool_result": {"text_result_for_llm": "no module\n<exited with exit code 2>"}}, True),
        ("copilot", {"tool_result": {"text_result_for_llm": COPILOT_OUTPUT.format("no module", 3)}}, True),
        ("copilot", {"tool_result": {"text_result_for_llm": COPILOT_OUTPUT.format("fine", 0)}}, False),
        ("cursor", {"tool_output": '{"output": "no module", "exitCode": 1}'}, True),
        ("cursor", {"tool_output": "fine"}, False),
    ],
)
def test_the_outcome_of_a_command_is_known(client: str, facts: dict[str, Any], failed: bool) -> None:
    shell = {"copilot": "bash", "cursor": "Shell", "gemini": "run_shell_command"}[client]
    told = {"tool_name": shell, "tool_input": {"command": "pytest"}} | facts
    event = build_event("PostToolUse", rename_facts(client, told))
    outcome = find_outcome(event, None)
    assert outcome is not None
    assert (event.tool, outcome.failed) == ("Bash", failed)
    assert "(none)" not in outcome.output
    assert ("no module" if failed else "fine") in outcome.output


def test_a_command_in_the_background_has_no_outcome() -> None:
    response = {"result_type": "success", "text_result_for_llm": "<command started in background with shellId: 0>"}
    facts = {"tool_name": "Bash", "tool_input": {"command": "make", "mode": "async"}, "tool_result": response}
    assert find_outcome(build_event("PostToolUse", rename_facts("copilot", facts)), None) is None


@pytest.mark.parametrize(
    ("client", "response"),
    [
        ("gemini", {"llmContent": GEMINI_OUTPUT.format("no module", 1)}),
        ("copilot", {"text_result_for_llm": COPILOT_OUTPUT.format("no module", 1)}),
    ],
)
def test_the_frame_around_an_output_is_not_part_of_the_error(client: str, response: dict[str, Any]) -> None:
    tool = {"gemini": "run_shell_command", "copilot": "Bash"}[client]
    facts = {"tool_name": tool, "tool_input": {"command": "pytest"}, "tool_response": response}
    outcome = find_outcome(build_event("PostToolUse", rename_facts(client, facts)), None)
    assert outcome is not None
    assert extract_error_lines(outcome.output) == ["no module"]


def write_rollout(path: Path, *items: Any) -> str:
    events = ({"type": "event_msg", "payload": {"type": "item_completed", "item": item}} for item in items)
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return str(path)


def find_codex_outcome(transcript: str | None) -> CommandOutcome | None:
    told = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": "no rule", "tool_use_id": "call_2"}
    return find_outcome(build_event("PostToolUse", rename_facts("codex", told | {"transcript_path": transcript})), None)


@pytest.mark.parametrize("code", [0, 2])
def test_the_transcript_of_codex_says_whether_a_command_failed(tmp_path: Path, code: int) -> None:
    others = [{"id": "call_1", "exit_code": 9}, {"id": "call_3", "exit_code": 9, "after": "call_2"}]
    transcript = write_rollout(tmp_path / "rollout.jsonl", {"id": "call_2", "exit_code": code}, *others)
    assert find_codex_outcome(transcript) == CommandOutcome(failed=code != 0, output="no rule")


@pytest.mark.parametrize("item", [None, [], {"id": "call_2"}, {"id": "call_2", "exit_code": "0"}, {"id": "x"}])
def test_without_an_exit_code_the_outcome_in_codex_is_unknown(tmp_path: Path, item: Any) -> None:
    assert find_codex_outcome(write_rollout(tmp_path / "rollout.jsonl", item, ["exit_code", "call_2"])) is None
    assert find_codex_outcome(str(tmp_path)) is None
    assert find_codex_outcome("\0") is None
    assert find_codex_outcome(None) is None


@pytest.mark.parametrize("client", ["codex", "copilot", "cursor", "gemini"])
@pytest.mark.parametrize("odd", [None, 1, [], {}, "", ["x"], {"a": None}])
def test_values_of_other_types_are_never_an_error(client: str, odd: Any) -> None:
    names = ("session_id", "cwd", "workspace_roots", "prompt", "error", "tool_name", "tool_input", "tool_response")
    renamed = rename_facts(client, dict.fromkeys(names, odd))
    assert build_event("PostToolUse", renamed).session == ""
    edited = rename_facts(client, {"tool_name": "replace", "tool_input": odd, "tool_response": {"llmContent": odd}})
    assert find_outcome(build_event("PostToolUse", edited), None) is not None
