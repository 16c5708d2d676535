"""Codex CLI's transcripts: one file per session, one line per item."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, RewindEvent, Snippet, Turn
from everkept.transcripts.source_programs import (
    WRONG_SHAPE,
    as_list,
    as_mapping,
    as_text,
    as_texts,
    compute_fingerprint,
    parse_time,
    parse_value,
)
from everkept.transcripts.turns import (
    OpenTurn,
    as_folder,
    as_name,
    clip_failure,
    count_unknown,
    list_files,
    list_snippets,
    parse_patch,
    strip_leading_tags,
)
from everkept.values import Value

# Tags that the program adds before a prompt, or sends instead of one.
_INJECTED_TAG_LIST = """
    INSTRUCTIONS apps_instructions collaboration_mode environment_context personality_spec permissions
    plugins_instructions recommended_plugins skill skills_instructions subagent_notification turn_aborted
    user_instructions user_shell_command
"""
_INJECTED_TAGS = frozenset(_INJECTED_TAG_LIST.split())
_AGENTS_FILE_PATTERN = re.compile(r"# AGENTS\.md instructions\b")
_EDITOR_HEADING = "# Context from my IDE setup:"
_REQUEST_HEADING = "## My request for Codex:"

# Names for tool calls whose item has no name.
_CALL_TOOLS = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": "local_shell",
    "web_search_call": "web_search",
    "tool_search_call": "tool_search",
    "image_generation_call": "image_generation",
}
_EXIT_PATTERN = re.compile(r"^(?:Exit code|Process exited with code):? (-?\d{1,10})$", re.MULTILINE)
_EXIT_SEARCH_CHARACTERS = 400  # the exit code comes before the output of the command
_OUTPUT_PATTERN = re.compile(r"^Output:\n", re.MULTILINE)


class CodexCall(Value):
    """A tool call of the assistant, with the files and code it wrote."""

    id: str
    tool: str
    files: tuple[str, ...]
    snippets: tuple[Snippet, ...]
    identity: str  # distinguishes it from other calls


def extract_texts(content: Any) -> Iterator[str]:
    for part in [content] if isinstance(content, str) else as_list(content):
        text = part if isinstance(part, str) else as_text(as_mapping(part).get("text"))
        if text.strip():
            yield text


def extract_user_text(content: Any) -> str:
    """Return the words of the person, without text that the program sent in their name."""
    said = (_strip_injected(text) for text in extract_texts(content))
    return "\n\n".join(text for text in said if text)


def parse_call(item: Mapping[str, Any]) -> CodexCall | None:
    """Parse a tool call. Return None if the item is not a call, or has no tool name."""
    kind = as_text(item.get("type"))
    tool = as_name(item.get("name")) or _CALL_TOOLS.get(kind, "")
    if kind not in _CALL_TOOLS or not tool:
        return None
    raw = item.get("arguments") or item.get("input") or item.get("action")
    arguments = as_mapping(parse_value(raw) if isinstance(raw, str) else raw)
    files, snippets = list(list_files(arguments)), list(list_snippets(arguments))
    for text in [raw] if isinstance(raw, str) and not arguments else _extract_argument_texts(arguments):
        patch = parse_patch(text)
        files += patch.files
        snippets += patch.snippets
    own = as_name(item.get("call_id")) or as_name(item.get("id"))
    return CodexCall(own, tool, tuple(files), tuple(snippets), own or str(raw))


def find_failure(output: Any) -> str | None:
    """Return the output of a failed tool call. Return None if it succeeded or its outcome is unknown."""
    value = parse_value(output) if isinstance(output, str) else output
    fields = as_mapping(value)
    said = "\n".join(extract_texts(fields.get("output") or fields.get("content") or value or output))
    code = as_mapping(fields.get("metadata")).get("exit_code", fields.get("exit_code"))
    if fields.get("success") is False or (isinstance(code, int) and code != 0):
        return clip_failure(said)
    found = _EXIT_PATTERN.search(said[:_EXIT_SEARCH_CHARACTERS])
    if found and int(found[1]) != 0:
        return clip_failure(f"{found[0]}\n{_OUTPUT_PATTERN.split(said, maxsplit=1)[-1]}")
    return None


def _strip_injected(text: str) -> str:
    said = strip_leading_tags(text, _INJECTED_TAGS)
    if _AGENTS_FILE_PATTERN.match(said):
        return ""
    if said.startswith(_EDITOR_HEADING):
        return said.partition(_REQUEST_HEADING)[2].strip()
    return said


def _extract_argument_texts(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that may contain a patch: an argument, or a word of a command."""
    for value in arguments.values():
        if isinstance(value, str):
            yield value
        else:
            yield from (word for word in as_list(value) if isinstance(word, str))


_SUMMARY = "summary"
# Records without words, or that repeat other records.
_IGNORED_RECORDS = frozenset(["session_state", "world_state"])
_IGNORED_ITEMS = frozenset(
    ["reasoning", "ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "tool_search_output"]
)
_MAX_PROMPTS = 50  # prompts that a rollback can reach
_MAX_ANSWERS = 100  # answers to one prompt that share the same chain
_MIN_UNIQUE_CHARACTERS = 20  # shorter ids may be counters or random numbers that repeat
_SESSION_PATTERN = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class CodexFormat:
    """Format of Codex transcripts: a prompt is one turn, an answer is a message and the tool calls after it.

    A file that continues an older session repeats its records, including its first line. The file's own first line
    determines the session of all records. Copies have the time of the copy. So a turn is identified by its id, or by
    its content and the prompts before it.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        known = as_mapping(state)
        found = _SESSION_PATTERN.findall(path.name)
        self._session_of_file = found[-1] if found else path.name.split(".", 1)[0]
        self._session = as_name(known.get("session"))
        self._folder = as_folder(known.get("folder"))
        self._branch = as_name(known.get("branch"))
        self._model = as_name(known.get("model"))
        self._part_of = as_name(known.get("part_of"))
        self._prompts = list(as_texts(known.get("prompts")))  # keys of the most recent prompts
        self._root = as_name(known.get("root"))  # the session in which the conversation began
        self._chain = as_name(known.get("chain"))  # fingerprint of all prompts so far
        # How often each identity occurred since the last prompt.
        self._said = {said: times for said, times in as_mapping(known.get("said")).items() if isinstance(times, int)}
        self._open: OpenTurn | None = None
        self._identity = ""  # of the open turn

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        return list(self._take_record(as_text(record.get("type")), record))

    def list_open_turns(self) -> list[Event]:
        return [self._open.build_turn(self._folder or None)] if self._open else []

    def get_session(self, record: Mapping[str, Any]) -> str:
        return self._session or self._session_of_file

    def get_state(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "folder": self._folder,
            "branch": self._branch,
            "model": self._model,
            "part_of": self._part_of,
            "prompts": list(self._prompts),
            "root": self._root,
            "chain": self._chain,
            "said": dict(self._said),
        }

    def _take_record(self, kind: str, record: Mapping[str, Any]) -> Iterator[Event]:
        payload = as_mapping(record.get("payload"))
        timestamp = as_text(record.get("timestamp"))
        if kind == "session_meta":
            self._begin_session(payload)
        elif kind == "turn_context":
            self._model = as_name(payload.get("model")) or self._model
            self._folder = self._folder or as_folder(payload.get("cwd"), self.skipped)
        elif kind == "response_item":
            yield from self._take_item(payload, timestamp)
        elif kind == "compacted":
            yield from self._take_summary(payload, timestamp)
        elif kind == "event_msg":
            yield from self._take_event(payload)
        elif "payload" not in record:
            yield from self._take_bare_record(kind, record)
        elif kind not in _IGNORED_RECORDS:
            count_unknown(self.skipped, "record", kind)

    def _begin_session(self, meta: Mapping[str, Any]) -> None:
        """Read the first line of a session. Later ones are copies from older sessions."""
        if not self._chain:
            self._root = as_name(meta.get("forked_from_id")) or as_name(meta.get("id"))
        if self._session:
            return
        self._session = as_name(meta.get("id")) or self._session_of_file
        self._folder = as_folder(meta.get("cwd"), self.skipped)
        self._branch = as_name(as_mapping(meta.get("git")).get("branch"))
        agent = as_mapping(as_mapping(as_mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
        self._part_of = as_name(agent.get("parent_thread_id") or meta.get("parent_thread_id"))

    def _take_bare_record(self, kind: str, record: Mapping[str, Any]) -> Iterator[Event]:
        """Read a record of older versions: a bare item, or a first line without a type."""
        if not kind and as_name(record.get("id")):
            self._begin_session(record)
        elif kind:
            yield from self._take_item(record, as_text(record.get("timestamp")))
        elif "record_type" not in record:
            self.skipped[WRONG_SHAPE] += 1

    def _take_item(self, item: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        kind = as_text(item.get("type"))
        if kind == "message":
            yield from self._take_message(item, timestamp)
        elif call := parse_call(item):
            self._take_call(call, timestamp)
        elif kind.endswith("_output"):
            said = find_failure(item.get("output"))
            if self._open and said is not None:
                self._open.add_failure(as_name(item.get("call_id")), said)
        elif kind not in _IGNORED_ITEMS:
            count_unknown(self.skipped, "item", kind)

    def _take_message(self, item: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        role = item.get("role")
        if role == USER and (said := extract_user_text(item.get("content"))):
            yield from self._close()
            turn = self._build_turn(USER, said, timestamp)
            self._prompts = [*self._prompts, turn.key][-_MAX_PROMPTS:]
            self._chain, self._said = turn.key, {}
            yield turn
        elif role == ASSISTANT and (said := "\n\n".join(extract_texts(item.get("content")))):
            if self._open and self._open.has_text:
                yield from self._close()
            if self._open is None:
                self._open = self._begin_turn(ASSISTANT, said, timestamp, as_name(item.get("id")))
            self._open.add_text(said)

    def _take_call(self, call: CodexCall, timestamp: str) -> None:
        if self._open is None:
            self._open = self._begin_turn(ASSISTANT, call.identity, timestamp, call.id)
        self._open.add_tool(call.tool)
        self._open.add_files(call.files)
        self._open.add_snippets(call.id, call.snippets)

    def _take_summary(self, payload: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        said = as_text(payload.get("message")).strip()
        if said:
            yield from self._close()
            turn = self._build_turn(_SUMMARY, said, timestamp)
            self._count_turn()
            yield turn

    def _take_event(self, event: Mapping[str, Any]) -> Iterator[Event]:
        """Handle a rollback, which removes the last prompts and their answers. Other events repeat items."""
        number = event.get("num_turns")
        if event.get("type") != "thread_rolled_back" or not isinstance(number, int):
            return
        yield from self._close()
        if number > 0 and self._prompts:
            kept = max(len(self._prompts) - number, 0)
            yield RewindEvent(self._session or self._session_of_file, self._prompts[kept])
            self._chain = self._prompts[kept - 1] if kept else compute_fingerprint(self._prompts[0])
            self._said = {}
            del self._prompts[kept:]

    def _build_turn(self, role: str, said: str, timestamp: str) -> Turn:
        turn = self._begin_turn(role, said, timestamp)
        turn.add_text(said)
        return turn.build_turn(self._folder or None)

    def _close(self) -> Iterator[Event]:
        if self._open:
            yield from self.list_open_turns()
            self._count_turn()
            self._open = None

    def _begin_turn(self, role: str, first: str, timestamp: str, own: str = "") -> OpenTurn:
        """Begin a turn. `own` is the id of its first item, if that has one."""
        session = self._session or self._session_of_file
        self._identity = compute_fingerprint(self._get_chain(), role, own or first)
        times = self._said.get(self._identity, 0)
        numbered = f"{self._identity}:{times}" if times else self._identity  # the same words may occur twice
        turn = Turn(
            key=own if len(own) >= _MIN_UNIQUE_CHARACTERS else numbered,
            session=session,
            author=USER if role == USER else ASSISTANT,
            text="",
            at=parse_time(timestamp),
            branch=self._branch or None,
            model=None if role == USER else self._model or None,
            is_summary=role == _SUMMARY,
            part_of=self._part_of or None,
        )
        return OpenTurn(turn, self.skipped)

    def _get_chain(self) -> str:
        """Return the fingerprint of the prompts so far, in this session or the one it continues."""
        return self._chain or compute_fingerprint(self._root or self._session or self._session_of_file)

    def _count_turn(self) -> None:
        """Record that the last begun turn is complete."""
        self._chain = self._get_chain()
        self._said[self._identity] = self._said.get(self._identity, 0) + 1
        if len(self._said) == _MAX_ANSWERS:
            self._chain, self._said = compute_fingerprint(self._chain, self._identity), {}
