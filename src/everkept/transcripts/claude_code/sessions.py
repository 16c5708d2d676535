"""Claude Code's transcripts: a file for each session, a line for each block of an answer."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, Titled, Turn
from everkept.transcripts.claude_code.prompts import blocks_of, failures, prompt_of, words
from everkept.transcripts.reading.contents import chunks, lines, opened
from everkept.transcripts.reading.decoding import WRONG_SHAPE, NoRecord, record_of
from everkept.transcripts.reading.fields import mapping, moment, string
from everkept.transcripts.saying.calls import files_of, snippets_of
from everkept.transcripts.saying.turns import OpenTurn, folder, name, title, unknown
from everkept.values import Value, replace

# What the program notes for itself: nothing that was said is lost with it.
_NOISE = frozenset(
    [
        "agent-color",
        "agent-name",
        "agent-setting",
        "content-replacement",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "saved_hook_context",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    ]
)
# Blocks that hold no words of either side.
_SILENT_BLOCKS = frozenset(
    [
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "container_upload",
        "web_search_tool_result",
    ]
)
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_NO_MODEL = "<synthetic>"  # the program speaks, in the assistant's place
_AGENT_FILE = re.compile(r"agent-(.+)")
_SESSION_FILE = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

# A turn that nothing was added to for so many lines is over: agents do not say that they end.
_PATIENCE = 2000
_MOST_OPEN = 8  # answers at once: of the assistant and its agents
_MOST_SESSIONS = 32  # whose folder is remembered: a file may begin with copies of older ones
_MOST_TITLES = 32


class _Answer(Value, frozen=False):
    """One that is being written."""

    turn: OpenTurn
    message: str
    line: int  # that last added to it


class ClaudeCodeFormat:
    """A prompt is a turn of its own. An answer is a message with text, and the messages without
    text that follow it.

    A turn belongs to the folder that its session began in, wherever the assistant went since.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        self._path = path
        agent = _AGENT_FILE.fullmatch(path.stem)
        self._agent = name(agent[1]) if agent else ""
        known = mapping(state)
        self._session = name(known.get("session"))  # the last that spoke; empty before that
        self._is_named = known.get("named") is True  # by the user
        self._folders = {
            session: folder(cwd) for session, cwd in mapping(known.get("folders")).items()
        }
        # Where the titles stand that wait for the last record of what they are titles of.
        self._titles = {
            leaf: line
            for leaf, line in mapping(known.get("titles")).items()
            if isinstance(line, int)
        }
        self._open: dict[str, _Answer] = {}

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        kind = string(record.get("type"))
        events = self._forgotten(line)
        if kind in ("user", "assistant", "attachment"):
            events += self._said(kind, record, line)
        elif kind in _TITLES:
            events += self._titled(kind, record, line)
        elif kind not in _NOISE:
            unknown(self.skipped, "record", kind)
        return events

    def pending(self) -> list[Event]:
        return [self._turn(session, answer.turn) for session, answer in self._open.items()]

    def session_of(self, record: Mapping[str, Any]) -> str:
        main = self._main(record)
        if not main or not (self._agent or record.get("isSidechain") is True):
            return main
        agent = name(record.get("agentId")) or self._agent
        return f"{main}/agent-{agent}" if agent else f"{main}/agent"

    def state(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "named": self._is_named,
            "folders": dict(self._folders),
            "titles": dict(self._titles),
        }

    def _said(self, kind: str, record: Mapping[str, Any], line: int) -> Iterator[Event]:
        session, part_of = self._conversation(record)
        begun = Turn(
            key=name(record.get("uuid")) or f"{session}:{line}",
            session=session,
            author=ASSISTANT if kind == "assistant" else USER,
            text="",
            at=moment(record.get("timestamp")),
            branch=name(record.get("gitBranch")) or None,
            part_of=part_of,
        )
        if begun.key in self._titles:
            yield from self._title_of(begun)
        if kind == "assistant":
            yield from self._answered(record, begun, line)
        elif record.get("isMeta") is not True:
            yield from self._prompted(record, begun, line)

    def _conversation(self, record: Mapping[str, Any]) -> tuple[str, str | None]:
        """The session that a record is of, and the one that sent the agent if it is an agent's."""
        self._session = self._main(record) or self._session_of_file()
        session = self.session_of(record)
        part_of = self._session if session != self._session else None
        cwd = folder(record.get("cwd"), self.skipped)
        if cwd and session not in self._folders:
            self._folders[session] = cwd
            if len(self._folders) > _MOST_SESSIONS:
                del self._folders[next(iter(self._folders))]
        return session, part_of

    def _main(self, record: Mapping[str, Any]) -> str:
        return name(record.get("sessionId")) or self._session

    def _session_of_file(self) -> str:
        beside_session = self._path.parent.name == "subagents"
        return self._path.parent.parent.name if beside_session else self._path.stem

    def _prompted(self, record: Mapping[str, Any], begun: Turn, line: int) -> Iterator[Event]:
        content = prompt_of(record)
        answer = self._open.get(begun.session)
        if answer:
            for failed in failures(content):
                answer.turn.fail(failed.call, failed.said)
            answer.line = line
        text = words(content)
        if text:
            yield from self._closed(begun.session)
            if record.get("isCompactSummary") is True:
                begun = replace(begun, author=ASSISTANT, is_summary=True)
            prompt = OpenTurn(begun, self.skipped)
            prompt.say(text)
            yield self._turn(begun.session, prompt)

    def _answered(self, record: Mapping[str, Any], begun: Turn, line: int) -> Iterator[Event]:
        message = mapping(record.get("message"))
        model = name(message.get("model"))
        if model == _NO_MODEL or record.get("isApiErrorMessage") is True:
            return
        texts, calls = self._parts(message.get("content"))
        if not texts and not calls:
            return
        identity = name(message.get("id")) or begun.key
        answer = self._open.get(begun.session)
        if texts and answer and answer.turn.has_text and answer.message != identity:
            yield from self._closed(begun.session)
            answer = None
        if answer is None:
            if len(self._open) == _MOST_OPEN:
                yield from self._closed(min(self._open, key=lambda one: self._open[one].line))
            begun = replace(begun, model=model or None)
            answer = _Answer(OpenTurn(begun, self.skipped), identity, line)
            self._open[begun.session] = answer
        answer.line = line
        if texts:
            answer.message = identity
        _add(answer.turn, texts, calls)

    def _parts(self, content: Any) -> tuple[list[str], list[Mapping[str, Any]]]:
        """The texts of an answer, and the calls of tools."""
        texts: list[str] = []
        calls: list[Mapping[str, Any]] = []
        for block in blocks_of(content):
            kind = string(block.get("type"))
            if kind == "text":
                texts.append(string(block.get("text")).strip())
            elif kind.endswith("tool_use") and name(block.get("name")):
                calls.append(block)
            elif kind not in _SILENT_BLOCKS:
                unknown(self.skipped, "block", kind)
        return [text for text in texts if text], calls

    def _titled(self, kind: str, record: Mapping[str, Any], line: int) -> Iterator[Event]:
        titled = _title(record, kind)
        if not titled:
            self.skipped[WRONG_SHAPE] += 1
        elif kind == "summary" and not self._session:
            # What stands first may be the title of another file's conversation.
            leaf = name(record.get("leafUuid"))
            if leaf and len(self._titles) < _MOST_TITLES:
                self._titles[leaf] = line
        elif kind == "custom-title" or not self._is_named:
            self._is_named = kind == "custom-title"
            yield Titled(name(record.get("sessionId")) or self._own_session(), titled)

    def _own_session(self) -> str:
        by_name = self._path.stem if _SESSION_FILE.fullmatch(self._path.stem) else self._session
        return by_name or self._path.stem

    def _title_of(self, leaf: Turn) -> Iterator[Event]:
        """What waited for this record; looked up in the file, for no state may hold it."""
        number = self._titles.pop(leaf.key)
        try:
            with opened(self._path) as content:
                found = islice(lines(chunks(content), 0), number - 1, number)
                titled = next((_title(record_of(line.data), "summary") for line in found), "")
        except (OSError, NoRecord):
            return
        if titled and not self._is_named:
            yield Titled(leaf.session, titled)

    def _forgotten(self, line: int) -> list[Event]:
        late = [s for s, answer in self._open.items() if line - answer.line > _PATIENCE]
        return [event for session in late for event in self._closed(session)]

    def _closed(self, session: str) -> Iterator[Event]:
        if answer := self._open.pop(session, None):
            yield self._turn(session, answer.turn)

    def _turn(self, session: str, turn: OpenTurn) -> Turn:
        return turn.turn(self._folders.get(session))


def _add(turn: OpenTurn, texts: list[str], calls: list[Mapping[str, Any]]) -> None:
    for text in texts:
        turn.say(text)
    for call in calls:
        arguments = mapping(call.get("input"))
        turn.use(name(call.get("name")))
        turn.touch(files_of(arguments))
        turn.write(name(call.get("id")), snippets_of(arguments))


def _title(record: Mapping[str, Any] | None, kind: str) -> str:
    return title(mapping(record).get(_TITLES[kind]))
