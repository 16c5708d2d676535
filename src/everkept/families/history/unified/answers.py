"""What a search over everything answers: on the wire, and as Markdown for people."""

from everkept.core.data_fence import as_data
from everkept.core.search_ports import SearchType
from everkept.core.text import clipped
from everkept.core.times import parsed
from everkept.families.history.search.answers import LOCAL, Worded
from everkept.families.history.search.markdown import Shown, ShownKind, page
from everkept.retrieval.intent import Intent
from everkept.tools.tool import Warned
from everkept.values import Value, field

# What `found_in` says of what past conversations hold; other families have names of their own.
CONVERSATIONS = "conversations"
CODE_PIECES = "code"
NO_HISTORY = "no_history"  # code of the warning that no conversation was ever taken in
RELATION = "relation"  # type of a result that says how two things belong together


class Whereabouts(Value):
    """Where and when something was said or stored, as far as that is known."""

    project_path: str | None = None
    timestamp: str | None = None
    session_id: str | None = None


class UnifiedResult(Value):
    """Something that was found, whoever keeps it.

    `type` is `conversation`, `decision` or `code`, or what another family calls it: `memory`,
    `section`, `entity`, `relation`. `found_in` names the part that was searched, and `also_in` the
    other servers that have the same.
    """

    id: str
    type: str
    content: str
    relevance_score: float
    search_type: SearchType
    found_in: str
    source: str = LOCAL
    context: Whereabouts = field(default_factory=Whereabouts)
    title: str | None = None
    language: str | None = None
    file: str | None = None
    also_in: list[str] | None = None


class Group(Value):
    """What one of the searched parts has found, best first."""

    found_in: str
    results: list[UnifiedResult]


class UnifiedAnswer(Value, Worded):
    """The best of everything, best first. Where no merging is wanted, `groups` has the results of
    each part that found anything, and `results` is empty."""

    results: list[UnifiedResult]
    intent: Intent
    explanation: str
    suggestions: list[str]
    groups: list[Group] | None = None
    warnings: list[Warned] | None = None

    @property
    def found(self) -> list[UnifiedResult]:
        """All results, merged or not."""
        return [*self.results, *(result for group in self.groups or () for result in group.results)]

    @property
    def is_lasting(self) -> bool:
        """Whether another try would find the same, as long as nothing has changed."""
        return all(warning.code == NO_HISTORY for warning in self.warnings or ())


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
