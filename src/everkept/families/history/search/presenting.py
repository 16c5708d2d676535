"""Hits become results: an excerpt each, with what stands around it."""

from collections.abc import Mapping, Sequence

from everkept.core.records import Record
from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.families.history.model import CODE, DECISION
from everkept.families.history.search.answers import (
    LOCAL,
    Context,
    Covered,
    MemoryResult,
    Resolution,
    ResultType,
    Stats,
)
from everkept.families.history.search.highlights import highlights
from everkept.families.history.search.recalling import shown_score
from everkept.families.history.search.surroundings import Surroundings
from everkept.families.history.search.wording import on_one_line
from everkept.retrieval.excerpts import excerpt
from everkept.retrieval.profile import Hit
from everkept.values import replace

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
