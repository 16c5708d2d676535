"""What searches of past conversations answer, as it stands on the wire."""

from typing import Any, Literal, Self, cast

from everkept.tools.tool import Warned
from everkept.values import Value, replace

ResultType = Literal["conversation", "code", "decision"]
LOCAL = "local"  # found on this machine


class Worded:
    """An answer whose text may be another than its JSON. What it says stays the same."""

    __slots__ = ("_text",)

    @property
    def sentence(self) -> str | None:
        return getattr(self, "_text", None)

    def worded(self, text: str) -> Self:
        """The same answer, with this text for who reads."""
        copy = cast(Self, replace(cast(Any, self)))
        object.__setattr__(copy, "_text", text)
        return copy


class Context(Value):
    """Where something was said; `before` and `after` are the turns beside it, clipped.

    `said` is what was said along with code.
    """

    session_id: str
    project_path: str
    timestamp: str
    participants: list[str]
    author: str | None = None
    branch: str | None = None
    program: str | None = None  # whose conversation it was
    before: str | None = None
    after: str | None = None
    said: str | None = None


class Resolution(Value):
    """The turn that says how a problem was solved."""

    id: str
    content: str


class MemoryResult(Value):
    """Something that was said or written; `content` is an excerpt around what was asked.

    `also_in` names the other servers that have the same.
    """

    id: str
    type: ResultType
    content: str
    context: Context
    relevance_score: float
    source: str
    highlights: list[str]
    title: str | None = None  # of the conversation
    language: str | None = None
    file: str | None = None
    resolution: Resolution | None = None
    also_in: list[str] | None = None


class Covered(Value):
    """From the oldest of the results to the newest."""

    oldest: str
    newest: str


class Stats(Value):
    total_results: int
    sources: dict[str, int]
    time_range: Covered | None = None  # None where there are no results


class MemorySearchResult(Value, Worded):
    """The best results; ten by ten, those of about one score the newest first."""

    results: list[MemoryResult]
    summary: str
    stats: Stats
    topics: list[str]
    warnings: list[Warned] | None = None


class CodeView(Value):
    """Code of a turn; its text where it was asked for."""

    id: str
    language: str | None = None
    file: str | None = None
    text: str | None = None


class TurnView(Value):
    """What somebody said. `clipped` counts the characters that are not shown, and `is_asked` marks
    the one that the id led to."""

    id: str
    position: int
    author: str
    timestamp: str
    type: str
    text: str
    files: list[str] | None = None
    tools: list[str] | None = None
    code: list[CodeView] | None = None
    clipped: int | None = None
    is_asked: bool | None = None


class ConversationPage(Value, Worded):
    """Some turns of a conversation in their order; the cursors lead to those before and after."""

    conversation_id: str
    session_id: str
    title: str
    project_path: str
    source: str
    started: str
    total_turns: int
    turns: list[TurnView]
    ended: str | None = None
    branch: str | None = None
    models: list[str] | None = None  # of these turns
    continues: str | None = None  # the session that it was resumed from
    part_of: str | None = None  # the session that sent an agent to do this
    previous_cursor: str | None = None
    next_cursor: str | None = None
    note: str | None = None
