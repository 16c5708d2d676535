"""The answer of a search over everything, as Markdown for people."""

from everkept.core.fencing import as_data
from everkept.core.text import clipped
from everkept.core.times import parsed
from everkept.families.history.search.markdown import Shown, ShownKind, page
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    RELATION,
    UnifiedAnswer,
    UnifiedResult,
)

LONGEST_QUESTION = 80  # characters of it that are repeated


def as_markdown(answer: UnifiedAnswer, question: str, now: int) -> str:
    """Everything under its heading, whether it is merged or not."""
    found = answer.found
    return page(
        as_data(_summary(len(found), question)),
        [_shown(result) for result in found],
        now,
        explanation=answer.explanation,
        suggestions=answer.suggestions,
        warnings=answer.warnings or (),
    )


def _summary(count: int, question: str) -> str:
    asked = f'"{clipped(question, LONGEST_QUESTION)}"'
    if not count:
        return f"I couldn't find anything about {asked}."
    return f"I found {count} {'result' if count == 1 else 'results'} about {asked}."


def _shown(result: UnifiedResult) -> Shown:
    when = result.context.timestamp
    return Shown(
        kind=_kind(result),
        id=result.id,
        text=result.content,
        when=None if when is None else parsed(when),
        place=result.context.project_path or "",
        language=result.language,
        title=result.file or result.title,
        about=("decision",) if result.type == "decision" else (),
        sources=(result.source, *(result.also_in or ())),
    )


def _kind(result: UnifiedResult) -> ShownKind:
    if result.type == RELATION:
        return "relation"
    if result.found_in == CODE_PIECES:
        return "code"
    return "discussion" if result.found_in == CONVERSATIONS else "other"
