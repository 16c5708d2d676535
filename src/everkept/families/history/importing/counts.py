"""What an import did, counted."""

from collections import Counter

from everkept.values import Value, field, fields


class Failure(Value):
    """A transcript that could not be read, and why."""

    source: str
    name: str
    reason: str


class Counts(Value, frozen=False):
    """Of one source, or of all."""

    transcripts: int = 0  # that were there
    read: int = 0  # of which something was new
    unchanged: int = 0
    left_out: int = 0  # that were read, and of which nothing was to be kept
    failed: int = 0
    conversations: int = 0  # that were new
    conversations_left_out: int = 0
    turns: int = 0  # that were new
    turns_changed: int = 0
    turns_removed: int = 0  # that were taken back
    turns_left_out: int = 0
    decisions: int = 0
    code: int = 0
    symbols: int = 0
    links: int = 0
    masked: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "Counts") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Imported(Value, frozen=False):
    """What was taken in, by source."""

    sources: dict[str, Counts] = field(default_factory=dict[str, Counts])
    failures: list[Failure] = field(default_factory=list[Failure])

    def of(self, source: str) -> Counts:
        return self.sources.setdefault(source, Counts())

    @property
    def total(self) -> Counts:
        total = Counts()
        for counts in self.sources.values():
            total.add(counts)
        return total
