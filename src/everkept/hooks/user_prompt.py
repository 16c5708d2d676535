"""UserPromptSubmit: an answer from the past, a hint where to look, or nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from everkept.core.context_text import as_data, fenced, token_count
from everkept.core.records import Record, Where
from everkept.core.secrets import masked
from everkept.core.text import clipped, counted
from everkept.core.times import ago
from everkept.errors import ProjectArchived
from everkept.families.history.model import CODE, CONVERSATION, DECISION, TURN
from everkept.hooks.events import Answer, Around, HookEvent
from everkept.hooks.prompt_evidence import (
    LONGEST,
    NOTICE,
    SAME_ERROR_LINE,
    TAG,
    Asked,
    Find,
    Folders,
    Found,
    shown_text,
)
from everkept.hooks.prompts import (
    SAME_DOMAIN,
    SAME_ERROR,
    Reading,
    Reason,
    Signals,
    asks_how_to,
    complexity,
    read,
    reason_to_suggest,
    wants_new_feature,
)
from everkept.hooks.workspace import open_todos, past_of, project_of
from everkept.language.past_forms import OVERVIEW, Wanted
from everkept.language.telling_words import Word, is_commonplace
from everkept.retrieval.excerpts import excerpt

if TYPE_CHECKING:
    from everkept.core.ports import RecordStore
    from everkept.hooks.prompt_evidence import Context, Find

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


CONFIDENT = 0.6  # share of the words, where the prompt asks for the past or hints at it
UNASKED = 0.8  # likeness, where nothing in it does
SOME = 0.4  # share of the words from which a record is worth a search

FEWEST_HINTED = 2  # words that the record and the prompt share
FEWEST_KNOWN = 2  # telling words of a prompt that the past must know for a search to be worth it
MOST_GIVEN = 4  # records
MOST_UNASKED = 2
BETTER = 0.2  # what a record gains that is of the kind which is asked for

_KINDS: dict[Wanted, tuple[str, ...]] = {
    "implementation": (CODE, TURN),
    "memory": (TURN,),
    "last work": (TURN, CODE),
    "discussion": (TURN,),
    "overview": (TURN,),
}


class Given(NamedTuple):
    """These are shown, the best first; `briefly` where nobody asked for them."""

    finds: tuple[Find, ...]
    briefly: bool = False


class Hinted(NamedTuple):
    """A search is worth it; `reason` is None where the prompt itself asks for the past."""

    reason: Reason | None
    finds: tuple[Find, ...]


def asked_of(reading: Reading) -> Asked:
    if reading.trigger is None:
        return Asked(
            reading.words,
            error=reading.error,
            error_lines=reading.error_lines,
            is_foreign=reading.is_foreign,
        )
    return Asked(
        reading.words,
        reading.around,
        kinds=_KINDS[reading.trigger.wanted],
        everywhere=not all(map(is_commonplace, reading.words)),
        is_foreign=reading.is_foreign,
    )


def decided(reading: Reading, found: Found) -> Given | Hinted | None:
    """None is the answer to most prompts."""
    if reading.trigger is not None:
        return _for_trigger(reading.trigger.wanted, found)
    if reading.has_indicator and (sure := _sure(found, CONFIDENT, FEWEST_HINTED)):
        return Given(sure[:MOST_GIVEN])
    if same := tuple(filter(_is_the_same, found.finds)):
        return Given(same[:MOST_UNASKED], briefly=True)
    like = tuple(find for find in found.finds if find.error_likeness > SAME_ERROR)
    some = like or _sure(found, SOME, FEWEST_HINTED)
    reason = reason_to_suggest(signals_of(reading, found)) if some else None
    return Hinted(reason, some) if reason else None


def signals_of(reading: Reading, found: Found) -> Signals:
    """What is measured; a number that only counts with another sign is 0 without it."""
    asking_how_to = asks_how_to(reading.prompt)
    return Signals(
        similarity_to_past=found.likeness,
        asking_how_to=asking_how_to,
        complexity=complexity(reading.prompt) if asking_how_to else 0.0,
        debugging=reading.is_debugging,
        error_similarity=found.error_likeness,
        new_feature=found.overlap > SAME_DOMAIN and wants_new_feature(reading.prompt),
        domain_overlap=found.overlap,
    )


def _for_trigger(wanted: Wanted, found: Found) -> Given | Hinted | None:
    if sure := tuple(filter(_may_be_given, _sure(found, CONFIDENT, 1))):
        return Given(tuple(_ranked(sure, wanted))[:MOST_GIVEN])
    # Other words may have been used for it, and a search knows those too.
    telling = [word for word in found.known if not is_commonplace(word)]
    if len(telling) < FEWEST_KNOWN:
        return None
    own = tuple(find for find in found.finds if find.words and not find.is_elsewhere)
    return Hinted(None, tuple(find for find in own if find.share >= SOME) or own)


def _may_be_given(find: Find) -> bool:
    """One word alone may mean anything in another project."""
    return not find.is_elsewhere or find.shared >= FEWEST_HINTED


def _is_the_same(find: Find) -> bool:
    return find.likeness >= UNASKED or find.error_likeness >= SAME_ERROR_LINE


def _sure(found: Found, share: float, shared: int) -> tuple[Find, ...]:
    return tuple(find for find in found.finds if find.share >= share and find.shared >= shared)


def _ranked(finds: Sequence[Find], wanted: Wanted) -> list[Find]:
    if wanted == "last work":
        return sorted(finds, key=lambda find: -find.record.at)
    best = {"implementation": _is_code, "memory": _is_memory}.get(wanted, _is_turn)
    return sorted(finds, key=lambda find: -(find.share + BETTER * best(find)))


def _is_code(find: Find) -> bool:
    return find.record.kind == CODE or "```" in find.record.text


def _is_turn(find: Find) -> bool:
    return find.record.kind == TURN


def _is_memory(find: Find) -> bool:
    return find.is_memory


MOST_WORDS = 8  # of the query that is proposed

_REASONS: dict[Reason | None, str] = {
    "similar work": "This is close to earlier work",
    "how to": "Something like this was worked on before",
    "similar error": "An error like this one came up before",
    "related feature": "Related things were built before",
    None: "The prompt asks about earlier work",
}


def suggestion(reason: Reason | None, finds: Sequence[Find], query: str, now: int) -> str:
    """What the assistant is told; no stored text is in it."""
    told = _REASONS[reason]
    if finds:
        newest = max(find.record.at for find in finds)
        told += f" ({counted(len(finds), 'record')}, the newest {ago(newest, now)})"
    tool, argument = _tool(reason, finds)
    return f'Everkept: {told}. If it would help, call {tool} with {argument} "{query}".'


def query_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words[:MOST_WORDS])


def fits(text: str, budget: int) -> bool:
    """Whether it takes no more tokens."""
    if len(text.encode("utf-8")) <= budget:  # no token is shorter than a byte
        return True
    from everkept.core.context_text import token_count

    return token_count(text) <= budget


def _tool(reason: Reason | None, finds: Sequence[Find]) -> tuple[str, str]:
    """That which finds what was found; of memories no search of conversations knows anything."""
    if finds and all(find.is_memory for find in finds):
        return "recall_memories", "query"
    if reason == "similar error":
        return "find_similar_problems", "problem_description"
    if any(find.is_memory for find in finds):
        return "recall_memories or recall_previous_discussions", "query"
    return "recall_previous_discussions", "query"


def user_prompt(event: HookEvent, around: Around) -> Answer | None:
    """Most prompts are none of our business: they end here before anything is opened."""
    reading = read(event.prompt)
    if reading is None or around.room is None:
        return None
    if reading.trigger is not None and reading.trigger.wanted == OVERVIEW:
        return overview(event, around)
    from everkept.hooks.prompt_evidence import look

    found: Found = around.run(look(around.room, event, around.settings, asked_of(reading)))
    decision = decided(reading, found)
    if decision is None:
        return None
    if isinstance(decision, Given):
        text = _given(decision, reading, found, around)
    else:
        text = _hinted(decision, reading, found, around)
    return Answer(text) if text else None


def _given(decision: "Given", reading: Reading, found: "Found", around: Around) -> str | None:
    from everkept.hooks.prompt_evidence import context_of, marks_of, not_given, topic_marks

    fresh = not_given(decision.finds, around.ledger.given())
    if not fresh:
        return None
    query = " ".join(spelling for word in reading.words for spelling in (word.text, *word.parts))

    def made(finds: "Sequence[Find]") -> "Context | None":
        return context_of(
            finds,
            query,
            budget=around.settings.prompt_token_budget,
            now=around.now,
            briefly=decision.briefly,
        )

    context = made(fresh)
    if context is None:
        return None
    marks = {mark for find in context.used for mark in marks_of(find.record)}
    owned = around.ledger.claim(marks | topic_marks(found.known))
    ours = [find for find in context.used if find.record.id in owned]
    if len(ours) < len(context.used):  # another hook of this session was quicker
        context = made(ours)
    return context.text if context else None


def _hinted(decision: "Hinted", reading: Reading, found: "Found", around: Around) -> str | None:
    from everkept.hooks.prompt_evidence import is_same_topic, not_given, topic_marks

    given = around.ledger.given()
    fresh = not_given(decision.finds, given)
    words = found.known or reading.words
    marks = topic_marks(words)
    # Where the best of it was given, a search would show that again.
    if decision.finds[:1] != tuple(fresh[:1]) or is_same_topic(marks, given):
        return None
    text = suggestion(decision.reason, fresh, query_of(words), around.now)
    if not fits(text, around.settings.prompt_token_budget):
        return None
    return text if around.ledger.claim(marks) else None
