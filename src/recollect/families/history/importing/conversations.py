"""A conversation while turns are added to it and taken from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recollect.core.records import Insert, Record, Step, Update
from recollect.families.history.model import CONVERSATION

LeftOut = Literal["marker", "forgotten", "excluded"]

# Tags say what is still to be done to a conversation, so that it can be found.
PURGING = "purging"  # it is left out, and some of its turns may be there yet
UNSORTED = "unsorted"  # a turn came later than others that happened after it

TITLE_LENGTH = 200


def part_tag(conversation: str) -> str:
    """What the conversations of agents have that this one sent."""
    return f"part of {conversation}"


def left_out_of(record: Record | None) -> str | None:
    return None if record is None else record.facets.get("left_out")


@dataclass(slots=True)
class Talk:
    """A conversation as it is to be. It is written where `is_kept`."""

    id: str
    session: str
    stored: Record | None = None
    name: str | None = None
    scope: str = ""
    occurred_at: int | None = None
    tags: set[str] = field(default_factory=set[str])
    facets: dict[str, Any] = field(default_factory=dict[str, Any])
    is_kept: bool = False

    @classmethod
    def of(cls, record: Record) -> "Talk":
        return cls(
            record.id,
            record.session or "",
            record,
            record.name,
            record.scope,
            record.occurred_at,
            set(record.tags),
            dict(record.facets),
        )

    @property
    def left_out(self) -> str | None:
        return self.facets.get("left_out")

    @property
    def next_position(self) -> int:
        return self.facets.get("turns", 0)

    @property
    def ended(self) -> int | None:
        return self.facets.get("ended")

    @property
    def is_there(self) -> bool:
        return self.is_kept or self.stored is not None

    @property
    def is_begun(self) -> bool:
        """Whether it has, or had, turns of which something is known."""
        return self.next_position > 0

    def leave_out(self, why: LeftOut, *, scope: str = "") -> None:
        """Nothing of it stays; `scope` is kept for what may be taken in again some day."""
        self.name, self.scope, self.occurred_at = None, scope, None
        self.tags = {tag for tag in self.tags if tag.startswith(part_tag(""))}
        if why != "excluded":
            self.tags.add(PURGING)  # of one that is new, agents may have been there before
        self.facets = {"source": self.facets.get("source"), "left_out": why}
        self.is_kept = True

    def take_in_again(self) -> None:
        del self.facets["left_out"]
        self.scope = ""

    def place(self, at: int) -> int:
        """The position of a turn that comes next."""
        if self.ended is not None and at < self.ended:
            self.tags.add(UNSORTED)
        position = self.next_position
        self.facets["turns"] = position + 1
        return position

    def note(self, at: int, project: str | None, branch: str | None) -> None:
        """What a turn says of the whole."""
        self.is_kept = True
        self.facets["ended"] = max(at, self.facets.get("ended", at))
        self.occurred_at = at if self.occurred_at is None else min(at, self.occurred_at)
        if project and not self.scope:
            self.scope = self.facets["project"] = project
        if branch:
            self.facets.setdefault("branch", branch)

    def call(self, words: str, position: int) -> None:
        """Gives it a name from a turn, unless it has one from elsewhere."""
        named = self.facets.get("named")
        if self.name is None or (named is not None and position <= named):
            self.name, self.facets["named"] = words, position

    def entitle(self, title: str) -> None:
        self.name = title
        self.facets.pop("named", None)
        self.is_kept = True

    def rewind(self, position: int, times: Iterable[int]) -> None:
        """Goes on from a position; `times` are those of the turns that are left."""
        self.is_kept = True
        self.facets["turns"] = position
        if self.facets.get("named", -1) >= position:
            self.name = None
            del self.facets["named"]
        left = sorted(times)
        self.occurred_at = left[0] if left else None
        self.facets["ended"] = left[-1] if left else None
        if not left:
            del self.facets["ended"]

    def step(self, at: int) -> Step:
        values: Mapping[str, Any] = {
            "name": self.name,
            "scope": self.scope,
            "occurred_at": self.occurred_at,
            "tags": tuple(sorted(self.tags)),
            "facets": self.facets,
        }
        if self.stored is not None:
            # Also where nothing differs: whoever left it out meanwhile has changed its version.
            return Update(self.id, values, self.stored.version)
        return Insert(
            Record(
                id=self.id,
                kind=CONVERSATION,
                created_at=at,
                updated_at=at,
                session=self.session,
                **values,
            )
        )
