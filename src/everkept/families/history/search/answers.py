"""Answers of searches: their shape on the wire, and those that are given again."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, Self, TypeVar, cast

from everkept.core.accounts import acting
from everkept.core.times import Clock
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


LARGEST = 1_000  # answers
HEAVIEST = 20_000  # results in all of them: some 40 MB
LIFETIME = 5 * 60 * 1_000_000  # microseconds since an answer was last given

A = TypeVar("A")


class _Entry(Value, Generic[A], frozen=False):
    stamp: object
    answer: A
    weight: int
    used_at: int


class AnswerCache(Generic[A]):
    """Keeps the answers that were given last; the age of one counts from its last use.

    A stamp tells the state of everything that an answer rests on: an answer with another one is
    never given. `weigh` says how much there is in an answer, and None for one that is not kept.
    """

    def __init__(
        self,
        clock: Clock,
        weigh: Callable[[A], int | None],
        largest: int = LARGEST,
        heaviest: int = HEAVIEST,
        lifetime: int = LIFETIME,
    ) -> None:
        self._clock = clock
        self._weigh = weigh
        self._largest = largest
        self._heaviest = heaviest
        self._lifetime = lifetime
        self._weight = 0
        self._entries: OrderedDict[object, _Entry[A]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(
        self,
        key: object,
        stamp: Callable[[], Awaitable[object]],
        make: Callable[[], Awaitable[A]],
    ) -> A:
        """The answer to `key`, made where there is none that holds. `stamp` is asked each time,
        and before the answer is made: what changes meanwhile makes it invalid."""
        key = acting(), key  # what another account was told is no answer to this one
        current = await stamp()
        entry = self._valid(key, current)
        if entry is not None:
            return entry.answer
        answer = await make()
        weight = self._weigh(answer)
        if weight is not None:
            self._keep(key, _Entry(current, answer, weight, self._clock()))
        return answer

    def _valid(self, key: object, stamp: object) -> _Entry[A] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        now = self._clock()
        if entry.stamp != stamp or now - entry.used_at > self._lifetime:
            self._drop(key)
            return None
        entry.used_at = now
        self._entries.move_to_end(key)
        return entry

    def _keep(self, key: object, entry: _Entry[A]) -> None:
        self._drop(key)  # somebody else may have asked the same meanwhile
        self._entries[key] = entry
        self._weight += entry.weight
        while len(self._entries) > self._largest or self._weight > self._heaviest:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: object) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
