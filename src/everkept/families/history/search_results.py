"""Hits become results: an excerpt each, its highlights, and what stands around it."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.families.history.model import CODE, CONVERSATION, DECISION, TURN
from everkept.families.history.relevance import shown_score, sought_by, without_masks
from everkept.families.history.search_answers import (
    LOCAL,
    Context,
    Covered,
    MemoryResult,
    Resolution,
    ResultType,
    Stats,
    on_one_line,
)
from everkept.language.sentences import sentences
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import Sought, excerpt
from everkept.retrieval.profile import Hit
from everkept.values import Value, field, replace

NOWHERE: Mapping[int, Record] = {}
FIRST_TURNS = 4  # of a conversation, in which everybody has spoken as a rule


class Surroundings(Value):
    """Turns by conversation and position, and conversations by id."""

    turns: Mapping[str, Mapping[int, Record]] = field(
        default_factory=dict[str, Mapping[int, Record]]
    )
    conversations: Mapping[str, Record] = field(default_factory=dict[str, Record])
    turns_of_code: Mapping[str, Record] = field(default_factory=dict[str, Record])

    def turn(self, record: Record) -> Record | None:
        """The turn itself, or the one that code stands in."""
        return record if record.kind == TURN else self.turns_of_code.get(record.parent or "")

    def beside(self, turn: Record | None, step: int) -> Record | None:
        if turn is None or turn.position is None:
            return None
        return self.turns.get(turn.parent or "", NOWHERE).get(turn.position + step)

    def participants(self, turn: Record | None) -> list[str]:
        """Who speaks in the conversation, as far as its turns are here, in the order they spoke."""
        known = self.turns.get((turn.parent if turn else None) or "", NOWHERE)
        return list(dict.fromkeys(a for place in sorted(known) if (a := known[place].author)))

    def conversation(self, turn: Record | None) -> Record | None:
        return None if turn is None else self.conversations.get(turn.parent or "")


async def surroundings(
    store: RecordStore, records: Sequence[Record], *, beside: bool = True
) -> Surroundings:
    """Of turns and code; the turns beside them, and the first ones of their conversations, where
    these are wanted."""
    parents = [record.parent for record in records if record.kind == CODE and record.parent]
    of_code = {turn.id: turn for turn in await store.get(parents)} if parents else {}
    turns = [*(record for record in records if record.kind == TURN), *of_code.values()]
    ids = list(dict.fromkeys(turn.parent for turn in turns if turn.parent))
    around, known = await asyncio.gather(_beside(store, turns if beside else ()), store.get(ids))
    conversations = {record.id: record for record in known if record.kind == CONVERSATION}
    return Surroundings(around, conversations, of_code)


async def turns_between(
    store: RecordStore, conversation: str, session: str, first: int, last: int
) -> list[Record]:
    """The turns of a conversation from one position to another, in their order."""
    places = tuple((session, position) for position in range(max(first, 0), last + 1))
    # Another program may have used the same id for a session of its own.
    found = [turn for turn in await _at(store, places) if turn.parent == conversation]
    return sorted(found, key=lambda turn: (turn.position or 0, turn.id))


async def _beside(store: RecordStore, turns: Sequence[Record]) -> dict[str, dict[int, Record]]:
    """The turns at these, just before and after them, and at the beginning of the conversation,
    by conversation and position."""
    places = {
        (turn.session, place)
        for turn in turns
        if turn.session is not None and turn.position is not None
        for place in (*range(FIRST_TURNS), *range(turn.position - 1, turn.position + 2))
    }
    around: dict[str, dict[int, Record]] = {}
    for turn in await _at(store, sorted(places)):
        around.setdefault(turn.parent or "", {})[turn.position or 0] = turn
    return around


async def _at(store: RecordStore, places: Sequence[tuple[str, int]]) -> list[Record]:
    return await store.scan(Where(kinds=(TURN,), places=tuple(places))) if places else []


LONGEST_CONTENT = 600  # characters of a turn
LONGEST_CODE = 1_200
LONGEST_BESIDE = 240  # of a turn before or after
_MARKS = 3  # characters that say that something is left out


def presented(
    hits: Sequence[Hit],
    query: str,
    around: Surroundings,
    *,
    decisions: bool = True,
    with_context: bool = True,
    resolutions: Mapping[str, Record] | None = None,
) -> list[MemoryResult]:
    """In the order given. Without `decisions`, a decision is a conversation like any other."""
    known = resolutions or {}
    return [
        _result(
            hit,
            query,
            around,
            _type_of(hit.record, decisions=decisions),
            with_context=with_context,
            resolution=known.get(hit.record.id),
        )
        for hit in hits
    ]


def stats_of(results: Sequence[MemoryResult]) -> Stats:
    sources: dict[str, int] = {}
    for result in results:
        sources[result.source] = sources.get(result.source, 0) + 1
    times = sorted(result.context.timestamp for result in results)
    return Stats(len(results), sources, Covered(times[0], times[-1]) if times else None)


def _type_of(record: Record, *, decisions: bool) -> ResultType:
    if record.kind == CODE:
        return "code"
    return "decision" if decisions and record.type == DECISION else "conversation"


def _result(
    hit: Hit,
    query: str,
    around: Surroundings,
    kind: ResultType,
    *,
    with_context: bool,
    resolution: Record | None,
) -> MemoryResult:
    record = hit.record
    is_code = record.kind == CODE
    content = shown_of(record.text, query, LONGEST_CODE if is_code else LONGEST_CONTENT)
    conversation = around.conversation(around.turn(record))
    return MemoryResult(
        id=record.id,
        type=kind,
        content=content,
        context=_context(record, around, with_context=with_context),
        relevance_score=shown_score(hit.score),
        source=LOCAL,
        highlights=highlights(content, query),
        title=conversation.name if conversation else None,
        language=record.type if is_code else None,
        file=record.name if is_code else None,
        resolution=_resolution(resolution, query),
    )


def _context(record: Record, around: Surroundings, *, with_context: bool) -> Context:
    turn = around.turn(record)
    context = Context(
        session_id=record.session or "",
        project_path=record.scope,
        timestamp=iso(record.at),
        participants=around.participants(turn) or ([record.author] if record.author else []),
        author=record.author,
        branch=(turn or record).facets.get("branch"),
        program=(turn or record).facets.get("source"),
    )
    if not with_context:
        return context
    return replace(
        context,
        before=_clipped(around.beside(turn, -1)),
        after=_clipped(around.beside(turn, 1)),
        said=_clipped(turn) if turn is not record else None,
    )


def _clipped(turn: Record | None) -> str | None:
    return (clipped(on_one_line(turn.text), LONGEST_BESIDE) or None) if turn is not None else None


def _resolution(turn: Record | None, query: str) -> Resolution | None:
    if turn is None:
        return None
    return Resolution(turn.id, shown_of(turn.text, query, LONGEST_CONTENT))


def shown_of(text: str, query: str, most: int) -> str:
    return excerpt(text, query, most - _MARKS).text


MOST = 3  # phrases
LONGEST = 100  # characters of a phrase, without its marks
BESIDE = 24  # characters that are shown on each side of the words
MARK = "**"

_WORD = re.compile(r"[^\s()\[\]{}<>,;\"`=|]+")
_CORE = re.compile(r"\w(?:\S*\w)?")


class Phrase(Value):
    """A part of a line from its first word that was asked for to its last, and how many there
    are."""

    text: str
    asked: frozenset[str]


def highlights(text: str, query: str) -> list[str]:
    """The phrases with most of the words, in the order of the text; none where no word is there."""
    sought = sought_by(query)
    text = without_masks(text)
    phrases = [
        phrase
        for sentence in sentences(text)
        for line in sentence.splitlines()
        if (phrase := _phrase(line, sought)) is not None
    ]
    chosen: list[Phrase] = []
    told: set[str] = set()
    by_words = sorted(range(len(phrases)), key=lambda i: (-len(phrases[i].asked), i))
    for number in by_words:
        # Another phrase with the same words tells nothing, but for the first one.
        if len(chosen) < MOST and not phrases[number].asked <= told:
            chosen.append(phrases[number])
            told |= phrases[number].asked
    return [phrase.text for phrase in phrases if phrase in chosen]


def _phrase(line: str, sought: Sought) -> Phrase | None:
    """The words that were asked for and what stands between them, with a little on both sides."""
    if not sought.may_be_in(line):
        return None
    found = [
        (word, said)
        for word in _WORD.finditer(line)
        if sought.may_be_in_chunk(word[0]) and (said := _said(word[0], sought))
    ]
    if not found:
        return None
    first, last = found[0][0], found[0][0]
    said = found[0][1]
    marked = [first]
    for word, more in found[1:]:
        if word.end() - first.start() <= LONGEST - 2 * BESIDE:
            last, said = word, said | more
            marked.append(word)
    start = _earlier(line, first.start())
    end = _later(line, last.end())
    pieces: list[str] = []
    at = start
    for word in marked:
        left, right = _core(word, said)
        pieces += [line[at:left], MARK, line[left:right][:LONGEST], MARK]
        at = right
    shown = " ".join("".join([*pieces, line[at:end]]).split())
    return Phrase(("… " if start else "") + shown + ("…" if end < len(line) else ""), said)


def _said(word: str, sought: Sought) -> frozenset[str]:
    """A number counts by itself: the 3 of S3 was not asked for."""
    found = sought.said_in(word)
    if not any(map(str.isdigit, found)) or len(stems(word)) == 1:
        return found
    return frozenset(s for s in found if not s.isdigit())


def _core(word: "re.Match[str]", asked: frozenset[str]) -> tuple[int, int]:
    """Where a word begins and ends without the punctuation at its edges; of scripts without spaces
    only what was asked for."""
    pieces = [(at, at + 2) for at in range(len(word[0])) if word[0][at : at + 2] in asked]
    if pieces and not word[0].isascii():
        return word.start() + pieces[0][0], word.start() + _end_of_run(pieces)
    found = _CORE.search(word[0])
    if found is None:
        return word.span()
    return word.start() + found.start(), word.start() + found.end()


def _end_of_run(pieces: Sequence[tuple[int, int]]) -> int:
    """Where the first pieces end that overlap each other."""
    end = pieces[0][1]
    for left, right in pieces:
        if left <= end:
            end = right
    return end


def _earlier(line: str, at: int) -> int:
    """A place before, where a word begins."""
    if at <= BESIDE:
        return 0
    blank = line.find(" ", at - BESIDE, at)
    return at if blank < 0 else blank + 1


def _later(line: str, at: int) -> int:
    if len(line) - at <= BESIDE:
        return len(line)
    blank = line.rfind(" ", at, at + BESIDE)
    return at if blank < 0 else blank
