"""Assistants besides Claude Code: the names of their events, tools and fields, and the form of answers they read.

Hooks of Claude Code do not load this module.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from everkept.errors import InvalidInput
from everkept.hooks.events import BOTH, NESTED, PLAIN, AnswerForm, HookAnswer, format_answer
from everkept.values import Value, field

CLAUDE_CODE, CODEX, COPILOT, CURSOR, GEMINI = "claude-code", "codex", "copilot", "cursor", "gemini"
MAX_TAIL_BYTES = 300_000  # read at the end of a transcript
SHELL, WRITE, EDIT = "Bash", "Write", "Edit"  # names of tools in Claude Code

_CAMEL_EVENTS = {
    "sessionStart": "SessionStart",
    "postToolUse": "PostToolUse",
    "postToolUseFailure": "PostToolUseFailure",
    "preCompact": "PreCompact",
    "sessionEnd": "SessionEnd",
}


class Assistant(Value):
    """How one assistant differs from Claude Code."""

    events: Mapping[str, str] = field(default_factory=dict[str, str])  # its name of an event: ours
    tools: Mapping[str, str] = field(default_factory=dict[str, str])  # its name of a tool in lower case: Claude Code's
    form: AnswerForm = NESTED  # of an answer
    time_limits: Mapping[str, float] = field(default_factory=dict[str, float])  # in seconds, if it allows less
    can_run_twice: bool = False  # it also runs the hooks of Claude Code


ASSISTANTS = {
    CLAUDE_CODE: Assistant(),
    CODEX: Assistant(
        tools={"apply_patch": EDIT, "exec_command": SHELL, "shell": SHELL}, time_limits={"SessionEnd": 2.0}
    ),
    COPILOT: Assistant(
        events={**_CAMEL_EVENTS, "userPromptSubmitted": "UserPromptSubmit"},
        tools={
            **{"bash": SHELL, "powershell": SHELL, "run_in_terminal": SHELL, "runterminalcommand": SHELL},
            **{"create": WRITE, "create_file": WRITE, "createfile": WRITE},
            **{"apply_patch": EDIT, "edit": EDIT, "edit_notebook_file": EDIT, "editfiles": EDIT},
            **{"insert_edit_into_file": EDIT, "multi_replace_string_in_file": EDIT, "replace_string_in_file": EDIT},
            **{"str_replace": EDIT, "str_replace_editor": EDIT},
        },
        form=BOTH,
        can_run_twice=True,
    ),
    CURSOR: Assistant(
        events={**_CAMEL_EVENTS, "beforeSubmitPrompt": "UserPromptSubmit"},
        tools={"shell": SHELL, "write": WRITE, "edit": EDIT, "strreplace": EDIT},
        form=PLAIN,
        can_run_twice=True,
    ),
    GEMINI: Assistant(
        events={"BeforeAgent": "UserPromptSubmit", "AfterTool": "PostToolUse", "PreCompress": "PreCompact"},
        tools={"run_shell_command": SHELL, "write_file": WRITE, "replace": EDIT},
    ),
}


def get_assistant(name: str) -> Assistant:
    """Return the assistant with this name. Raise InvalidInput for an unknown one."""
    if name not in ASSISTANTS:
        raise InvalidInput(f"Unknown client {name[:40]!r}.", hint=f"Use one of {', '.join(ASSISTANTS)}.")
    return ASSISTANTS[name]


def detect_client(facts: Mapping[str, Any]) -> str:
    """Return the client that runs a hook written for Claude Code. `facts` are not in Claude Code's form."""
    return CURSOR if "conversation_id" in facts else COPILOT


def format_for(client: str, event: str, answer: HookAnswer | None) -> bytes:
    """Return the bytes to print for this client."""
    assistant = get_assistant(client)
    own_names = {ours: own for own, ours in assistant.events.items()} if assistant.form == NESTED else {}
    return format_answer(own_names.get(event, event), answer, form=assistant.form)


def rename_facts(client: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts with the names and values that Claude Code gives them."""
    assistant = get_assistant(client)
    told = {_FIELD_NAMES.get(name, name): value for name, value in facts.items()}
    told["session_id"] = _find_text(facts, "session_id", "sessionId", "conversation_id")
    told["cwd"] = _find_text(facts, "cwd") or _find_workspace(facts)
    event = _find_text(told, "hook_event_name")
    told["hook_event_name"] = assistant.events.get(event, event)
    if isinstance(told.get("prompt"), str):
        told["prompt"] = _HOOK_CONTEXT.sub("", told["prompt"])
    if client == COPILOT:
        told.pop("transcript_path", None)  # in a format that no reader knows
    error = told.get("error")
    if isinstance(error, Mapping):
        told["error"] = _find_text(cast(Mapping[str, Any], error), "message")
    if "tool_name" in told:
        told |= _rename_tool_facts(assistant, told)
    return told


# A client's name of a field: the name in Claude Code.
_FIELD_NAMES = {
    "error_message": "error",
    "hookEventName": "hook_event_name",
    "toolArgs": "tool_input",
    "toolName": "tool_name",
    "toolResult": "tool_response",
    "tool_output": "tool_response",
    "tool_result": "tool_response",
    "transcriptPath": "transcript_path",
}
_FILE_FIELDS = ("file_path", "filePath", "path", "target_file")
_PATCH_FIELDS = ("command", "input", "patch")  # of apply_patch
_PARTS_FIELD = "replacements"  # of a tool that edits several files
_OUTPUT_FIELDS = ("llmContent", "textResultForLlm", "text_result_for_llm")
_RESULT_TYPES = ("resultType", "result_type")

# The text that a hook added before a prompt, which Gemini CLI passes to the next hook as part of the prompt.
_HOOK_CONTEXT = re.compile(r"\A\s*<hook_context>.*?</hook_context>\s*", re.DOTALL)
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add File|Update File|Move to): (.*\S)", re.MULTILINE)
_EXIT_CODE = re.compile(r"(?:^Exit Code: |\b(?:exited|completed) with exit code )(\d{1,10})\b", re.MULTILINE)
_IN_BACKGROUND = re.compile(r"^<command started in background\b", re.MULTILINE)
# Gemini CLI lists the parts of a result, also those that are empty, between two tags. Copilot CLI adds a line.
_EMPTY_LINE = re.compile(r"^\w[\w ]*: \((?:none|empty)\)\n?", re.MULTILINE)
_FRAME_LINE = re.compile(
    r"^(?:</?untrusted_context>|Process Group PGID: \d+|<[^<>\n]* with exit code \d+>)(?:\n|\Z)", re.MULTILINE
)
_OUTPUT_LABEL = re.compile(r"^Output: ", re.MULTILINE)
_WINDOWS_ROOT = re.compile(r"/(?=[A-Za-z]:)")


def _find_text(facts: Mapping[str, Any], *names: str) -> str:
    values = (facts.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


def _find_workspace(facts: Mapping[str, Any]) -> str:
    roots = facts.get("workspace_roots")
    first = cast(list[Any], roots)[0] if isinstance(roots, list) and roots else ""
    return _WINDOWS_ROOT.sub("", first, count=1) if isinstance(first, str) else ""


def _rename_tool_facts(assistant: Assistant, told: Mapping[str, Any]) -> dict[str, Any]:
    name = _find_text(told, "tool_name")
    given = _parse_object(told.get("tool_input"))
    tool = assistant.tools.get(name.lower(), name)
    if tool in (WRITE, EDIT):
        given = {**given, "file_paths": list(dict.fromkeys(_list_files(told.get("tool_input"), given)))}
    renamed: dict[str, Any] = {"tool_name": tool, "tool_input": given}
    if "tool_response" in told:
        renamed["tool_response"] = _rename_response(told["tool_response"])
    if assistant is ASSISTANTS[CODEX] and tool == SHELL and isinstance(told.get("tool_response"), str):
        renamed["tool_response"] = _build_codex_response(told)
    return renamed


def _parse_object(value: Any) -> Mapping[str, Any]:
    """Return an object, also one that is written as JSON text. Return an empty one for other values."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _list_files(told: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of an edit in order. The input of `apply_patch` may be only its text."""
    if single := _find_text(given, *_FILE_FIELDS):
        yield single
    parts = given.get(_PARTS_FIELD)
    for part in cast(list[Any], parts) if isinstance(parts, list) else []:
        if each := _find_text(_parse_object(part), *_FILE_FIELDS):
            yield each
    patch = _find_text(given, *_PATCH_FIELDS) or (told if isinstance(told, str) else "")
    yield from _PATCHED_FILE.findall(patch)


def _rename_response(response: Any) -> Any:
    fields = _parse_object(response)
    if not fields:
        return response
    found = {**fields, "output": next((fields[name] for name in _OUTPUT_FIELDS if fields.get(name)), None)}
    if found["output"] is None:
        return fields
    has_error = bool(fields.get("error"))
    found["is_error"] = has_error or _find_text(fields, *_RESULT_TYPES) in ("failure", "error")
    for name in (*_OUTPUT_FIELDS, "error", "returnDisplay"):
        found.pop(name, None)
    if isinstance(found["output"], str):
        if codes := _EXIT_CODE.findall(found["output"]):
            found["exit_code"] = int(codes[-1])
        elif _IN_BACKGROUND.search(found["output"]):
            found["is_unknown"] = True
        listed = _FRAME_LINE.sub("", _EMPTY_LINE.sub("", found["output"]))
        found["output"] = _OUTPUT_LABEL.sub("", listed, count=1)
    return found


def _build_codex_response(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of a command with its exit code, or as unknown. Codex writes the code to its transcript."""
    transcript, call = _find_text(told, "transcript_path"), _find_text(told, "tool_use_id")
    code = _find_exit_code(transcript, call) if transcript and call else None
    outcome = {"is_unknown": True} if code is None else {"exit_code": code}
    return {"output": told["tool_response"], **outcome}


def _find_exit_code(transcript: str, call: str) -> int | None:
    from pathlib import Path

    from everkept.core.disk import read_tail

    try:
        tail = read_tail(Path(transcript), MAX_TAIL_BYTES)
    except (OSError, ValueError):  # a ValueError if it is not a path
        return None
    name = call.encode("utf-8", "replace")
    lines = (line for line in reversed(tail.split(b"\n")) if name in line and b'"exit_code"' in line)
    return next((code for line in lines if (code := _parse_exit_code(line, call)) is not None), None)


def _parse_exit_code(line: bytes, call: str) -> int | None:
    try:
        item: Any = json.loads(line)["payload"]["item"]
        code = item["exit_code"] if item["id"] == call else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return code if type(code) is int else None
