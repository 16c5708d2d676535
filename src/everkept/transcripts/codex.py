"""Codex CLI's transcripts: one file a session, one line an item."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, Rewound, Snippet, Turn
from everkept.transcripts.source_programs import (
    WRONG_SHAPE,
    fingerprint,
    listed,
    mapping,
    moment,
    string,
    strings,
    value_in,
)
from everkept.transcripts.turns import (
    OpenTurn,
    failure,
    files_of,
    folder,
    name,
    patch_in,
    snippets_of,
    unknown,
    without_leading,
)
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


_SUMMARY = "summary"
# Lines that repeat what others say, or that say nothing.
_NOISE = frozenset(["session_state", "world_state"])
_SILENT_ITEMS = frozenset(
    [
        "reasoning",
        "ghost_snapshot",
        "compaction",
        "compaction_summary",
        "context_compaction",
        "tool_search_output",
    ]
)
_MOST_PROMPTS = 50  # that can be taken back
_MOST_SAID = 100  # answers to a prompt that are told apart by what was said before them
_UNIQUE = 20  # characters of an id; some servers count, or throw dice, for shorter ones
_FILE_SESSION = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class CodexFormat:
    """A prompt is a turn of its own. An answer is a message, and the calls of tools behind it.

    What an older session said comes again in a file that goes on from it, with its first line
    too: the file's own first line says whose all of it is. The copies have the time at which they
    were copied, so a turn is known by its id, or by what it says and the prompts before it.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        known = mapping(state)
        found = _FILE_SESSION.findall(path.name)
        self._session_of_file = found[-1] if found else path.name.split(".", 1)[0]
        self._session = name(known.get("session"))
        self._folder = folder(known.get("folder"))
        self._branch = name(known.get("branch"))
        self._model = name(known.get("model"))
        self._part_of = name(known.get("part_of"))
        self._prompts = list(strings(known.get("prompts")))  # keys of the last ones
        self._root = name(known.get("root"))  # the session that all of it began in
        self._chain = name(known.get("chain"))  # stands for all prompts so far
        # How often the same was said since, by what stands for it.
        self._said = {
            said: times
            for said, times in mapping(known.get("said")).items()
            if isinstance(times, int)
        }
        self._open: OpenTurn | None = None
        self._identity = ""  # of the turn that is open

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        return list(self._taken(string(record.get("type")), record))

    def pending(self) -> list[Event]:
        return [self._open.turn(self._folder or None)] if self._open else []

    def session_of(self, record: Mapping[str, Any]) -> str:
        return self._session or self._session_of_file

    def state(self) -> dict[str, Any]:
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

    def _taken(self, kind: str, record: Mapping[str, Any]) -> Iterator[Event]:
        payload = mapping(record.get("payload"))
        timestamp = string(record.get("timestamp"))
        if kind == "session_meta":
            self._begin(payload)
        elif kind == "turn_context":
            self._model = name(payload.get("model")) or self._model
            self._folder = self._folder or folder(payload.get("cwd"), self.skipped)
        elif kind == "response_item":
            yield from self._item(payload, timestamp)
        elif kind == "compacted":
            yield from self._compacted(payload, timestamp)
        elif kind == "event_msg":
            yield from self._happened(payload)
        elif "payload" not in record:
            yield from self._bare(kind, record)
        elif kind not in _NOISE:
            unknown(self.skipped, "record", kind)

    def _begin(self, meta: Mapping[str, Any]) -> None:
        """A session's first line; further ones are copies of older sessions'."""
        if not self._chain:
            self._root = name(meta.get("forked_from_id")) or name(meta.get("id"))
        if self._session:
            return
        self._session = name(meta.get("id")) or self._session_of_file
        self._folder = folder(meta.get("cwd"), self.skipped)
        self._branch = name(mapping(meta.get("git")).get("branch"))
        agent = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
        self._part_of = name(agent.get("parent_thread_id") or meta.get("parent_thread_id"))

    def _bare(self, kind: str, record: Mapping[str, Any]) -> Iterator[Event]:
        """What older versions wrote: the items themselves, and a first line without a type."""
        if not kind and name(record.get("id")):
            self._begin(record)
        elif kind:
            yield from self._item(record, string(record.get("timestamp")))
        elif "record_type" not in record:
            self.skipped[WRONG_SHAPE] += 1

    def _item(self, item: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        kind = string(item.get("type"))
        if kind == "message":
            yield from self._message(item, timestamp)
        elif call := call_of(item):
            self._called(call, timestamp)
        elif kind.endswith("_output"):
            self._finished(item)
        elif kind not in _SILENT_ITEMS:
            unknown(self.skipped, "item", kind)

    def _message(self, item: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        role = item.get("role")
        if role == USER and (said := words(item.get("content"))):
            yield from self._closed()
            turn = self._whole(USER, said, timestamp)
            self._prompts = [*self._prompts, turn.key][-_MOST_PROMPTS:]
            self._chain, self._said = turn.key, {}
            yield turn
        elif role == ASSISTANT and (said := "\n\n".join(texts_of(item.get("content")))):
            if self._open and self._open.has_text:
                yield from self._closed()
            if self._open is None:
                self._open = self._begun(ASSISTANT, said, timestamp, name(item.get("id")))
            self._open.say(said)

    def _called(self, call: Call, timestamp: str) -> None:
        if self._open is None:
            self._open = self._begun(ASSISTANT, call.identity, timestamp, call.id)
        self._open.use(call.tool)
        self._open.touch(call.files)
        self._open.write(call.id, call.snippets)

    def _finished(self, item: Mapping[str, Any]) -> None:
        said = failure_of(item.get("output"))
        if self._open and said is not None:
            self._open.fail(name(item.get("call_id")), said)

    def _compacted(self, payload: Mapping[str, Any], timestamp: str) -> Iterator[Event]:
        said = string(payload.get("message")).strip()
        if said:
            yield from self._closed()
            turn = self._whole(_SUMMARY, said, timestamp)
            self._count()
            yield turn

    def _happened(self, event: Mapping[str, Any]) -> Iterator[Event]:
        """Most events repeat items. One takes the last prompts back, with what came of them."""
        number = event.get("num_turns")
        if event.get("type") != "thread_rolled_back" or not isinstance(number, int):
            return
        yield from self._closed()
        if number > 0 and self._prompts:
            kept = max(len(self._prompts) - number, 0)
            yield Rewound(self._session or self._session_of_file, self._prompts[kept])
            self._chain = self._prompts[kept - 1] if kept else fingerprint(self._prompts[0])
            self._said = {}
            del self._prompts[kept:]

    def _whole(self, role: str, said: str, timestamp: str) -> Turn:
        turn = self._begun(role, said, timestamp)
        turn.say(said)
        return turn.turn(self._folder or None)

    def _closed(self) -> Iterator[Event]:
        if self._open:
            yield from self.pending()
            self._count()
            self._open = None

    def _begun(self, role: str, first: str, timestamp: str, own: str = "") -> OpenTurn:
        """`own` is the id of the item that it begins with, where that has one."""
        session = self._session or self._session_of_file
        self._identity = fingerprint(self._before(), role, own or first)
        turn = Turn(
            key=own if len(own) >= _UNIQUE else self._numbered(self._identity),
            session=session,
            author=USER if role == USER else ASSISTANT,
            text="",
            at=moment(timestamp),
            branch=self._branch or None,
            model=None if role == USER else self._model or None,
            is_summary=role == _SUMMARY,
            part_of=self._part_of or None,
        )
        return OpenTurn(turn, self.skipped)

    def _before(self) -> str:
        """Stands for what was asked so far, in this session or the one that it goes on from."""
        return self._chain or fingerprint(self._root or self._session or self._session_of_file)

    def _numbered(self, identity: str) -> str:
        """The same may be said twice."""
        times = self._said.get(identity, 0)
        return f"{identity}:{times}" if times else identity

    def _count(self) -> None:
        """Notes that the turn which was begun last is over."""
        self._chain = self._before()
        self._said[self._identity] = self._said.get(self._identity, 0) + 1
        if len(self._said) == _MOST_SAID:
            self._chain, self._said = fingerprint(self._chain, self._identity), {}
