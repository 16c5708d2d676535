"""What was done of late in this project: conversations, what they decided, and what is open."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from everkept.core.data_fence import as_data, fenced
from everkept.core.records import Record, Where
from everkept.core.secrets import masked
from everkept.core.text import clipped
from everkept.core.times import ago
from everkept.core.tokens import token_count
from everkept.errors import ProjectArchived
from everkept.families.history.model import CONVERSATION, DECISION, TURN
from everkept.hooks.model import Answer, Around, HookEvent
from everkept.hooks.past import past_of
from everkept.hooks.places import project_of
from everkept.hooks.prompting.injecting import LONGEST, NOTICE, TAG, shown_text
from everkept.hooks.prompting.lookup import Folders
from everkept.hooks.todos import open_todos
from everkept.retrieval.excerpts import excerpt

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.ports import RecordStore

MARK = "overview"  # in the ledger: once a session is enough
LOOKED_AT = 40  # records a question, of which some may not be meant
MOST_TALKS, MOST_DECISIONS, MOST_TODOS = 5, 4, 5
LONGEST_TITLE, LONGEST_LINE = 120, 300  # characters
DECIDING = "decided agreed settled chose decision"  # what a decision is told by


class Line(NamedTuple):
    """What is told of one record, below a heading."""

    heading: str
    text: str
    record: Record


def overview(event: HookEvent, around: Around) -> Answer | None:
    """Without what the session was given at its start; as much as fits."""
    given = around.ledger.given()
    if MARK in given:
        return None
    found: list[Line] = around.run(_recent(event, around))
    lines = [line for line in found if line.record.id not in given]
    while lines and not _fits(_framed(lines), around.settings.prompt_token_budget):
        lines.pop()
    if not lines or MARK not in around.ledger.claim({MARK, *(line.record.id for line in lines)}):
        return None
    return Answer(_framed(lines))


async def _recent(event: HookEvent, around: Around) -> list[Line]:
    room, now = around.room, around.now
    if room is None:
        return []
    history = await past_of(room)
    talks = [] if history is None else await _talks(history, event)
    lines = [
        Line("The newest conversations of this project:", _titled(talk, now), talk)
        for talk in talks
    ]
    if history is not None and talks:
        lines += await _said(history, talks, now)
    project = await project_of(event.folder, around.settings, room)
    if project is not None:
        try:
            _, store = await room.open(project.name)
        except ProjectArchived:
            return lines
        lines += await _todos(store, event.session, now)
    return lines


async def _talks(history: "RecordStore", event: HookEvent) -> list[Record]:
    scopes = Folders.around(event.folder).among(await history.scopes(CONVERSATION))
    if not scopes:
        return []
    where = Where(kinds=(CONVERSATION,), scopes=scopes)
    found = await history.scan(where, order="newest", limit=LOOKED_AT)
    others = [talk for talk in found if _is_told(talk) and talk.session != event.session]
    return sorted(others, key=_ended, reverse=True)[:MOST_TALKS]


def _is_told(talk: Record) -> bool:
    facets = talk.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(talk.name and talk.session and has_turns and not facets.get("part_of"))


def _ended(talk: Record) -> int:
    return int(talk.facets.get("ended_at") or talk.at)


def _titled(talk: Record, now: int) -> str:
    return f"{ago(_ended(talk), now)}: {_line(talk.name or '', LONGEST_TITLE)}"


async def _said(history: "RecordStore", talks: Sequence[Record], now: int) -> list[Line]:
    """How the newest one ended, and what was decided in all of them."""
    newest = Where(kinds=(TURN,), sessions=(talks[0].session or "",))
    turns = await history.scan(newest, order="newest", limit=LOOKED_AT)
    last = max(turns, key=lambda turn: turn.position or 0, default=None)
    lines: list[Line] = []
    if last is not None:
        end = shown_text(last).strip()[-LONGEST_LINE:]
        lines.append(Line("The newest of them ended with:", f"{_by(last)}: {_line(end)}", last))
    sessions = tuple(talk.session for talk in talks if talk.session)
    decided = Where(kinds=(TURN,), types=(DECISION,), sessions=sessions)
    for turn in await history.scan(decided, order="newest", limit=MOST_DECISIONS):
        part = excerpt(shown_text(turn), DECIDING, LONGEST_LINE).text
        text = f"{ago(turn.at, now)}, {_by(turn)}: {_line(part)}"
        lines.append(Line("Decided in them:", text, turn))
    return lines


async def _todos(store: "RecordStore", session: str, now: int) -> list[Line]:
    todos = [todo for todo in await open_todos(store, session) if not _is_past(todo)]
    return [
        Line("Open:", f"{ago(todo.at, now)}: {_line(shown_text(todo))}", todo)
        for todo in todos[:MOST_TODOS]
    ]


def _is_past(memory: Record) -> bool:
    return bool(memory.facets.get("superseded_by") or memory.facets.get("merged_into"))


def _by(turn: Record) -> str:
    return f"the {turn.author}" if turn.author in ("user", "assistant") else "somebody"


def _line(text: str, longest: int = LONGEST_LINE) -> str:
    return clipped(as_data(masked(text)[0]), longest)


def _framed(lines: Sequence[Line]) -> str:
    told: list[str] = []
    for heading in dict.fromkeys(line.heading for line in lines):
        told += [heading, *(f"- {line.text}" for line in lines if line.heading == heading)]
    return fenced("\n".join(told) + "\n", NOTICE, TAG)


def _fits(text: str, budget: int) -> bool:
    return len(text) <= LONGEST and token_count(text) <= budget
