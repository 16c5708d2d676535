"""What the steps of a batch will ask for, so that a view can read it ahead."""

from everkept.core.records import Batch, Delete, Insert, Link, Record, Restore, Update
from everkept.values import Value, field


class Foreseen(Value, frozen=False):
    """Things by id, each once; and those that come or change, as the steps have them."""

    records: dict[str, None] = field(default_factory=dict[str, None])  # but for the doomed
    links: dict[str, None] = field(default_factory=dict[str, None])
    doomed: dict[str, None] = field(default_factory=dict[str, None])  # records, with all below
    returning: dict[str, None] = field(default_factory=dict[str, None])  # records
    returning_links: dict[str, None] = field(default_factory=dict[str, None])
    named: list[Record] = field(default_factory=list[Record])  # that come, and have a name
    joined: list[Link] = field(default_factory=list[Link])  # that come
    updates: list[Update] = field(default_factory=list[Update])

    def note(self, batch: Batch) -> None:
        for step in batch.steps:
            match step:
                case Insert(Record() as record):
                    self._note_record(record)
                case Insert(Link() as link):
                    self._note_link(link)
                case Update():
                    self.records[step.id] = None
                    self.updates.append(step)
                case Delete(ref):
                    (self.links if ref.subject == "link" else self.doomed)[ref.id] = None
                case Restore(ref):
                    is_link = ref.subject == "link"
                    (self.links if is_link else self.records)[ref.id] = None
                    (self.returning_links if is_link else self.returning)[ref.id] = None
                case _:
                    pass

    def _note_record(self, record: Record) -> None:
        self.records[record.id] = None
        if record.parent is not None:
            self.records[record.parent] = None
        if record.name_key is not None:
            self.named.append(record)

    def _note_link(self, link: Link) -> None:
        self.links[link.id] = None
        self.records |= dict.fromkeys((link.source, link.target))
        self.joined.append(link)
