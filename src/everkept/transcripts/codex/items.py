"""What the items of Codex' transcripts say: a person's words, the calls of tools, their results."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everkept.core.transcripts import Snippet
from everkept.transcripts.reading.decoding import value_in
from everkept.transcripts.reading.fields import listed, mapping, string
from everkept.transcripts.saying.calls import failure, files_of, snippets_of
from everkept.transcripts.saying.patches import patch_in
from everkept.transcripts.saying.turns import name
from everkept.transcripts.saying.wrappers import without_leading
from everkept.values import Value

# What is put before a person's words, or sent in their place.
_INJECTED = frozenset(
    [
        "INSTRUCTIONS",
        "apps_instructions",
        "collaboration_mode",
        "environment_context",
        "personality_spec",
        "permissions",
        "plugins_instructions",
        "recommended_plugins",
        "skill",
        "skills_instructions",
        "subagent_notification",
        "turn_aborted",
        "user_instructions",
        "user_shell_command",
    ]
)
_GUIDE = re.compile(r"# AGENTS\.md instructions\b")
_FROM_EDITOR = "# Context from my IDE setup:"
_REQUEST = "## My request for Codex:"

# Where a tool has no name of its own.
_CALLS = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": "local_shell",
    "web_search_call": "web_search",
    "tool_search_call": "tool_search",
    "image_generation_call": "image_generation",
}
_EXIT = re.compile(r"^(?:Exit code|Process exited with code):? (-?\d{1,10})$", re.MULTILINE)
_WHERE_EXIT_STANDS = 400  # characters from the beginning: before what the command said
_OUTPUT = re.compile(r"^Output:\n", re.MULTILINE)


class Call(Value):
    """A tool that the assistant called, and what it did with it."""

    id: str
    tool: str
    files: tuple[str, ...]
    snippets: tuple[Snippet, ...]
    identity: str  # tells it from other calls


def texts_of(content: Any) -> Iterator[str]:
    """The parts of a message."""
    for part in [content] if isinstance(content, str) else listed(content):
        text = part if isinstance(part, str) else string(mapping(part).get("text"))
        if text.strip():
            yield text


def words(content: Any) -> str:
    """What a person said, without what the program says in their name."""
    said = (_own_words(text) for text in texts_of(content))
    return "\n\n".join(text for text in said if text)


def call_of(item: Mapping[str, Any]) -> Call | None:
    """None where the item is no call, or one without a name."""
    kind = string(item.get("type"))
    tool = name(item.get("name")) or _CALLS.get(kind, "")
    if kind not in _CALLS or not tool:
        return None
    raw = item.get("arguments") or item.get("input") or item.get("action")
    arguments = mapping(value_in(raw) if isinstance(raw, str) else raw)
    files, snippets = list(files_of(arguments)), list(snippets_of(arguments))
    for text in [raw] if isinstance(raw, str) and not arguments else _texts_in(arguments):
        patch = patch_in(text)
        files += patch.files
        snippets += patch.snippets
    own = name(item.get("call_id")) or name(item.get("id"))
    return Call(own, tool, tuple(files), tuple(snippets), own or str(raw))


def failure_of(output: Any) -> str | None:
    """What a tool said that failed; None where it did not, or nothing tells."""
    value = value_in(output) if isinstance(output, str) else output
    fields = mapping(value)
    said = "\n".join(texts_of(fields.get("output") or fields.get("content") or value or output))
    code = mapping(fields.get("metadata")).get("exit_code", fields.get("exit_code"))
    if fields.get("success") is False or (isinstance(code, int) and code != 0):
        return failure(said)
    found = _EXIT.search(said[:_WHERE_EXIT_STANDS])
    if found and int(found[1]) != 0:
        return failure(f"{found[0]}\n{_OUTPUT.split(said, maxsplit=1)[-1]}")
    return None


def _own_words(text: str) -> str:
    said = without_leading(text, _INJECTED)
    if _GUIDE.match(said):
        return ""
    if said.startswith(_FROM_EDITOR):
        return said.partition(_REQUEST)[2].strip()
    return said


def _texts_in(arguments: Mapping[str, Any]) -> Iterator[str]:
    """A patch is an argument, or a word of a command."""
    for value in arguments.values():
        if isinstance(value, str):
            yield value
        else:
            yield from (word for word in listed(value) if isinstance(word, str))
