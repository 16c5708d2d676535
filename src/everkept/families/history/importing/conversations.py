"""A conversation while turns are added to it and taken from it."""

from collections.abc import Mapping
from typing import Any, Literal

from everkept.core.records import Insert, Record, Step, Update
from everkept.families.history.model import CONVERSATION
from everkept.values import Value, field

LeftOut = Literal["marker", "forgotten", "excluded"]
FOR_GOOD = ("marker", "forgotten")  # reasons that no change of the settings takes away

# Tags say what is still to be done to a conversation, so that it can be found.
PURGING = "purging"  # it is left out, and some of its turns may be there yet
UNSORTED = "unsorted"  # a turn came later than others that happened after it, or one went


def part_tag(conversation: str) -> str:
    """What the conversations of agents have that this one sent."""
    return f"part of {conversation}"


def left_out_of(record: Record | None) -> str | None:
    return None if record is None else record.facets.get("left_out")


class Gist(Value, frozen=False):
    """What the turns of a conversation say of the whole. They may come in any order."""

    turns: int = 0
    began: int | None = None
    ended: int | None = None
    scope: tuple[int, str] | None = None  # the first that was told, with the turn's sequence
    branch: tuple[int, str] | None = None

    def add(self, at: int, sequence: int, scope: str, branch: str | None) -> None:
        self.turns += 1
        self.began = at if self.began is None else min(at, self.began)
        self.ended = at if self.ended is None else max(at, self.ended)
        if scope and (self.scope is None or sequence < self.scope[0]):
            self.scope = (sequence, scope)
        if branch and (self.branch is None or sequence < self.branch[0]):
            self.branch = (sequence, branch)


class Talk(Value, frozen=False):
    """A conversation as it is to be. It is written where `is_kept`."""

    id: str
    session: str | None
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
            record.session,
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
    def is_out_for_good(self) -> bool:
        return self.left_out in FOR_GOOD

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
        """Nothing of it stays; `scope` is kept for what may be taken in again some day.

        Of one that was forgotten not even what its program calls it.
        """
        self.name, self.scope, self.occurred_at = None, scope, None
        if why == "forgotten":
            self.session = None
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

    def next_sequence(self) -> int:
        """The number of a turn that comes now; positions change, and this tells what came when."""
        self.is_kept = True
        number = self.facets.get("sequence", 0)
        self.facets["sequence"] = number + 1
        return number

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

    def rewind(self, left: Gist) -> None:
        """Without some of its turns; where the others stand is settled later."""
        self.tags.add(UNSORTED)
        if not left.turns:
            self.facets["turns"] = 0
        self.settle(left)

    def settle(self, gist: Gist) -> None:
        """After turns were taken back: what is left tells all."""
        self.is_kept = True
        self.occurred_at = gist.began
        self.scope = gist.scope[1] if gist.scope else ""
        told = {
            "ended": gist.ended,
            "project": self.scope or None,
            "branch": gist.branch and gist.branch[1],
            "reader": self.facets.get("reader") if gist.turns else None,
        }
        self.facets |= told
        self.facets = {
            name: value
            for name, value in self.facets.items()
            if value is not None or name not in told
        }

    def step(self, at: int) -> Step:
        values: Mapping[str, Any] = {
            "name": self.name,
            "session": self.session,
            "scope": self.scope,
            "occurred_at": self.occurred_at,
            "tags": tuple(sorted(self.tags)),
            "facets": self.facets,
        }
        if self.stored is not None:
            # Also where nothing differs: whoever left it out meanwhile has changed its version.
            return Update(self.id, values, self.stored.version)
        return Insert(Record(id=self.id, kind=CONVERSATION, created_at=at, updated_at=at, **values))
