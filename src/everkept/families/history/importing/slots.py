"""A turn while a portion is played: what it was, and what it is to be."""

from collections.abc import Iterable

from everkept.core.records import Record
from everkept.families.history.importing.growing import Growth, as_stored, grown_tag, growths_of
from everkept.families.history.importing.turns import Said
from everkept.values import Value


class Slot(Value, frozen=False):
    """A turn as it was and as it is to be; `said` is None where the portion does not tell."""

    owner: str  # its conversation
    session: str | None
    stored: Record | None
    is_live: bool
    position: int
    at: int
    sequence: int = 0  # the order in which the turns of a conversation came
    scope: str = ""
    tags: frozenset[str] = frozenset()  # the readings that it came in, and who has added to it
    said: Said | None = None
    grown: tuple[Growth, ...] = ()  # what copies of it in other conversations have added

    @classmethod
    def of(cls, record: Record) -> "Slot":
        return cls(
            record.parent or "",
            record.session,
            record,
            record.deleted_at is None,
            record.position or 0,
            record.at,
            record.facets.get("sequence", 0),
            record.scope,
            frozenset(record.tags),
            grown=growths_of(record),
        )

    @property
    def text(self) -> str:
        if self.said is not None:
            return self.said.text
        return "" if self.stored is None else self.stored.text

    @property
    def branch(self) -> str | None:
        if self.said is not None:
            return self.said.branch
        return None if self.stored is None else self.stored.facets.get("branch")

    def is_begun_by(self, said: Said) -> bool:
        """Whether it is an older state of what is said now."""
        is_longer = said.is_whole and len(said.text) > len(self.text)
        return is_longer and said.text.startswith(self.text)

    def grow(self, said: Said, conversation: str, code: Iterable[Record]) -> None:
        """A copy in this conversation says more; `code` is what the stored turn has."""
        is_another = not self.grown or self.grown[-1].conversation != conversation
        before = self.said or (self.stored and as_stored(self.stored, code))
        if is_another and before is not None:
            self.has_grown(*self.grown, Growth(conversation, before))
        self.said = said

    def catch_up(self, said: Said) -> None:
        """Its own conversation says now what copies said before."""
        for number, growth in reversed(list(enumerate(self.grown))):
            if len(growth.before.text) <= len(said.text):
                rest = self.grown[number + 1 :]
                self.has_grown(Growth(growth.conversation, said), *rest)
                return

    def shrink(self, conversation: str) -> None:
        """Without what this conversation added, and whoever went on from there."""
        for number, growth in enumerate(self.grown):
            if growth.conversation == conversation:
                self.said = growth.before
                self.has_grown(*self.grown[:number])
                break

    def has_grown(self, *growths: Growth) -> None:
        """By these and no others."""
        old = {grown_tag(growth.conversation) for growth in self.grown}
        new = {grown_tag(growth.conversation) for growth in growths}
        self.grown, self.tags = growths, (self.tags - old) | new
