"""What a search over everything answers, as it stands on the wire."""

from everkept.core.searching import SearchType
from everkept.families.history.search.answers import LOCAL, Worded
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
