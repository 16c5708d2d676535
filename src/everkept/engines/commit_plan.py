"""Plan of a commit for engines that lack one: the records and links to write for a batch.

The caller reads, this module decides, and the caller writes the whole plan or nothing.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from everkept.core.answers import StorePage
from everkept.core.ports import Redaction
from everkept.core.records import AMENDABLE, Batch, Delete, Edit, Insert, Record, RecordLink, Ref, Restore, Step, Update
from everkept.errors import Conflict
from everkept.values import Value, field, replace

UniqueName = tuple[str, str | None, str, str | None]
UniqueEdge = tuple[str, str, str]
# A vector belongs to the text and name it was computed from.
_EMBEDDED_FIELDS = frozenset(("text", "name"))


class CommitView(Protocol):
    """The stored data before the batch. The planner asks for one thing at a time; a view may prefetch."""

    async def find_record(self, record_id: str) -> Record | None:
        """Return the record, live or deleted."""
        ...

    async def find_link(self, link_id: str) -> RecordLink | None:
        """Return the link, live or deleted."""
        ...

    async def list_children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        """Return the children of all these records, live or deleted, oldest first."""
        ...

    async def list_links(self, record_id: str) -> Sequence[RecordLink]:
        """Return the links from and to the record, live or deleted, oldest first."""
        ...

    async def list_namesakes(self, record: Record) -> Sequence[Record]:
        """Return live records with the same kind, name_key, variant and parent."""
        ...

    async def list_duplicates(self, link: RecordLink) -> Sequence[RecordLink]:
        """Return live links with the same source, verb and target."""
        ...


class CommitPlan(Value, frozen=False):
    """The records and links to write, whole and by id, in the order of their first mention."""

    edits: tuple[Edit, ...] = ()
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    links: dict[str, RecordLink] = field(default_factory=dict[str, RecordLink])
    before: dict[str, Record] = field(default_factory=dict[str, Record])  # records as they were before the batch
    fresh: list[Ref] = field(default_factory=list[Ref])  # new records and links, oldest first
    # Records whose vector was computed from an earlier text or name.
    retold: set[str] = field(default_factory=set[str])


class NewAges(NamedTuple):
    """Ages of new records and links by id."""

    records: dict[str, int]
    links: dict[str, int]


def assign_ages(fresh: Iterable[Ref], last: int) -> NewAges:
    """Number the new records and links in their order, starting after `last`."""
    ages = {ref: last + number for number, ref in enumerate(fresh, 1)}
    return NewAges(
        {ref.id: age for ref, age in ages.items() if ref.subject == "record"},
        {ref.id: age for ref, age in ages.items() if ref.subject == "link"},
    )


async def plan_commit(batch: Batch, view: CommitView) -> CommitPlan:
    """Plan the commit of a batch. Raise Conflict if the batch contradicts the stored data."""
    planner = CommitPlanner(batch, view)
    edits = [edit for step in batch.steps for edit in await planner.apply(step)]
    return await planner.finish(edits)


class CommitPlanner:
    """The view, with the effects of the steps applied so far on top of it."""

    def __init__(self, batch: Batch, view: CommitView) -> None:
        self._batch = batch
        self._view = view
        self._seen: dict[str, Record] = {}  # as they were before the batch
        self._named: dict[UniqueName, str] = {}  # id of the last record in the batch with the name
        self._joined: dict[UniqueEdge, str] = {}  # id of the last link in the batch with the edge
        # New records by parent, with their number, and ids of new links by source and target.
        self._below: defaultdict[str | None, list[tuple[int, str]]] = defaultdict(list)
        self._at: defaultdict[str, list[str]] = defaultdict(list)
        self._touched: dict[str, None] = {}
        self._plan = CommitPlan()

    async def finish(self, edits: Sequence[Edit]) -> CommitPlan:
        for record_id in self._touched:
            record = await self.find_record(record_id)
            if record and record.updated_at < self._batch.at:
                self._put_record(replace(record, updated_at=self._batch.at))
        self._plan.edits = tuple(edits)
        return self._plan

    async def apply(self, step: Step) -> list[Edit]:
        match step:
            case Insert(Record() as record):
                return [await self._insert_record(record)]
            case Insert(RecordLink() as link):
                return [await self._insert_link(link)]
            case Update():
                return await self._update(step)
            case Delete(ref):
                return await self._delete(ref)
            case Restore(ref):
                return [await self._restore(ref)]
            case _:
                raise TypeError(step)

    async def _insert_record(self, record: Record) -> Edit:
        if record.parent is not None:
            await self._require_record(record.parent)
        if await self.find_record(record.id):
            raise Conflict(f"Record {record.id} already exists.", hint="Use a new id.", id=record.id)
        await self._check_name(record)
        new = replace(
            record, version=1, deleted_at=None, facets=_as_json(record.facets), tags=tuple(dict.fromkeys(record.tags))
        )
        self._put_record(new)
        self._below[record.parent].append((len(self._plan.fresh), record.id))
        self._plan.fresh.append(record.ref)
        await self._touch(record.parent)
        return Edit("insert", "record", record.id)

    async def _insert_link(self, link: RecordLink) -> Edit:
        await self._require_record(link.source)
        await self._require_record(link.target)
        if await self.find_link(link.id):
            raise Conflict(f"Link {link.id} already exists.", hint="Use a new id.", id=link.id)
        await self._check_link(link)
        self._put_link(replace(link, deleted_at=None, facets=_as_json(link.facets)))
        self._plan.fresh.append(link.ref)
        for end in {link.source, link.target}:
            self._at[end].append(link.id)
        return Edit("insert", "link", link.id)

    async def _update(self, step: Update) -> list[Edit]:
        unknown = set(step.values) - AMENDABLE
        if unknown:
            raise ValueError(f"not amendable: {sorted(unknown)}")
        record = await self._require_record(step.id)
        if record.version != step.version:
            raise Conflict(f"Record {step.id} has changed.", hint="Read the record again, then retry.", id=step.id)
        values = dict(step.values)
        if "facets" in values:
            values["facets"] = _as_json(values["facets"])
        if "tags" in values:
            values["tags"] = tuple(dict.fromkeys(values["tags"]))
        old = {name: getattr(record, name) for name in values}
        before = {name: value for name, value in old.items() if value != values[name]}
        if not before and step.at is None:
            return []
        changed = replace(
            record,
            **{name: values[name] for name in before},
            updated_at=self._batch.at if step.at is None else step.at,
            version=record.version + 1,
        )
        await self._check_name(changed)
        self._put_record(changed)
        if before.keys() & _EMBEDDED_FIELDS:
            self._plan.retold.add(step.id)
        return [Edit("update", "record", step.id, {} if self._batch.derived else before)]

    async def _delete(self, ref: Ref) -> list[Edit]:
        if ref.subject == "link":
            link = await self.find_link(ref.id)
            if link is None or link.deleted_at is not None:
                raise Conflict(f"Link {ref.id} no longer exists.", hint="Read the links again, then retry.", id=ref.id)
            return [self._delete_link(link)]
        record = await self._require_record(ref.id)
        family = [*await self._list_descendants(record), record]
        edits = [
            self._delete_link(link)
            for member in family
            for link in await self._list_links(member.id)
            if link.deleted_at is None
        ]
        for member in family:
            self._delete_record(member)
            edits.append(Edit("delete", "record", member.id, {"deleted_at": None}))
        await self._touch(record.parent)
        return edits

    def _delete_record(self, record: Record) -> None:
        if self._batch.derived:
            record = replace(record, text="", name=None, name_key=None, tags=(), facets={})
            self._plan.retold.add(record.id)
        self._put_record(replace(record, deleted_at=self._batch.at))

    def _delete_link(self, link: RecordLink) -> Edit:
        self._put_link(replace(link, deleted_at=self._batch.at))
        return Edit("delete", "link", link.id, {"deleted_at": None})

    async def _restore(self, ref: Ref) -> Edit:
        thing = await (self.find_record if ref.subject == "record" else self.find_link)(ref.id)
        if thing is None or thing.deleted_at is None:
            raise Conflict(
                f"{ref.subject.capitalize()} {ref.id} is not deleted.", hint="Restore only deleted data.", id=ref.id
            )
        if isinstance(thing, RecordLink):
            await self._require_record(thing.source)
            await self._require_record(thing.target)
            await self._check_link(thing)
            self._put_link(replace(thing, deleted_at=None))
        else:
            if thing.parent is not None:
                await self._require_record(thing.parent)
            await self._check_name(thing)
            self._put_record(replace(thing, deleted_at=None))
            await self._touch(thing.parent)
        return Edit("restore", ref.subject, ref.id, {"deleted_at": thing.deleted_at})

    async def _require_record(self, record_id: str) -> Record:
        record = await self.find_record(record_id)
        if record is None or record.deleted_at is not None:
            raise Conflict(
                f"Record {record_id} no longer exists.", hint="Read the records again, then retry.", id=record_id
            )
        return record

    async def _check_name(self, record: Record) -> None:
        if record.name_key is None:
            return
        made, name = self._plan.records, get_unique_name(record)
        others = {r.id for r in await self._view.list_namesakes(record) if r.id not in made}
        last = self._named.get(name)
        if last is not None and made[last].deleted_at is None and get_unique_name(made[last]) == name:
            others.add(last)
        if others - {record.id}:
            raise Conflict(
                f"A {record.kind} with this name already exists.",
                hint="Use the existing one, or choose another name.",
                kind=record.kind,
                name=record.name,
            )

    async def _check_link(self, link: RecordLink) -> None:
        made = self._plan.links
        others = {x.id for x in await self._view.list_duplicates(link) if x.id not in made}
        last = self._joined.get(get_unique_edge(link))
        if last is not None and made[last].deleted_at is None:
            others.add(last)
        if others - {link.id}:
            raise Conflict("This link already exists.", hint="Use the existing link.", verb=link.verb)

    async def _touch(self, record_id: str | None) -> None:
        if record_id is None or self._batch.copied:
            return
        record = await self.find_record(record_id)
        if record and record.deleted_at is None:
            self._touched[record_id] = None

    async def _list_descendants(self, record: Record) -> list[Record]:
        """Return live descendants, deepest first, and oldest first within one depth."""
        depths: list[list[Record]] = []
        above, known = [record], {record.id}
        # A record changed from outside may be its own ancestor.
        while above := [r for r in await self._list_children(above) if r.deleted_at is None and r.id not in known]:
            known |= {each.id for each in above}
            depths.append(above)
        return [member for depth in reversed(depths) for member in depth]

    async def find_record(self, record_id: str) -> Record | None:
        found = self._plan.records.get(record_id) or await self._view.find_record(record_id)
        return found and self._get_planned(found)

    async def find_link(self, link_id: str) -> RecordLink | None:
        return self._plan.links.get(link_id) or await self._view.find_link(link_id)

    async def _list_children(self, parents: Sequence[Record]) -> list[Record]:
        there = await self._view.list_children([parent.id for parent in parents])
        fresh = sorted(born for parent in parents for born in self._below.get(parent.id, ()))
        return [
            *(self._get_planned(record) for record in there),
            *(self._plan.records[record_id] for _, record_id in fresh),
        ]

    async def _list_links(self, record_id: str) -> list[RecordLink]:
        made = self._plan.links
        there = [made.get(x.id, x) for x in await self._view.list_links(record_id)]
        return [*there, *(made[link_id] for link_id in self._at.get(record_id, ()))]

    def _get_planned(self, record: Record) -> Record:
        """Return the planned version of the record, otherwise the stored one."""
        made = self._plan.records.get(record.id)
        if made is None:
            self._seen[record.id] = record
        return made or record

    def _put_record(self, record: Record) -> None:
        self._plan.records[record.id] = record
        if record.id in self._seen:
            self._plan.before.setdefault(record.id, self._seen[record.id])
        if record.deleted_at is None:
            self._named[get_unique_name(record)] = record.id

    def _put_link(self, link: RecordLink) -> None:
        self._plan.links[link.id] = link
        if link.deleted_at is None:
            self._joined[get_unique_edge(link)] = link.id


def get_unique_name(record: Record) -> UniqueName:
    """Return the key that only one live record may have, if it has a name_key."""
    return record.kind, record.name_key, record.variant, record.parent


def get_unique_edge(link: RecordLink) -> UniqueEdge:
    """Return the key that only one live link may have."""
    return link.source, link.verb, link.target


def _as_json(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facets as an engine reads them from disk, for example with lists instead of tuples."""
    return json.loads(json.dumps(facets))


class PrefetchSet(Value, frozen=False):
    """Ids of the records and links that a batch reads, each once, and its inserts and updates."""

    records: dict[str, None] = field(default_factory=dict[str, None])  # without those in `purge_set`
    links: dict[str, None] = field(default_factory=dict[str, None])
    purge_set: dict[str, None] = field(default_factory=dict[str, None])  # records to delete, with their descendants
    returning: dict[str, None] = field(default_factory=dict[str, None])  # records to restore
    returning_links: dict[str, None] = field(default_factory=dict[str, None])
    named: list[Record] = field(default_factory=list[Record])  # inserted records with a name
    joined: list[RecordLink] = field(default_factory=list[RecordLink])  # inserted links
    updates: list[Update] = field(default_factory=list[Update])

    def add_batch(self, batch: Batch) -> None:
        for step in batch.steps:
            match step:
                case Insert(Record() as record):
                    self.records[record.id] = None
                    if record.parent is not None:
                        self.records[record.parent] = None
                    if record.name_key is not None:
                        self.named.append(record)
                case Insert(RecordLink() as link):
                    self.links[link.id] = None
                    self.records |= dict.fromkeys((link.source, link.target))
                    self.joined.append(link)
                case Update():
                    self.records[step.id] = None
                    self.updates.append(step)
                case Delete(ref):
                    (self.links if ref.subject == "link" else self.purge_set)[ref.id] = None
                case Restore(ref):
                    is_link = ref.subject == "link"
                    (self.links if is_link else self.records)[ref.id] = None
                    (self.returning_links if is_link else self.returning)[ref.id] = None
                case _:
                    pass


def redact_record(record: Record, clean: Redaction) -> Record:
    values = {name: getattr(record, name) for name in sorted(AMENDABLE)}
    cleaned = clean(record.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(record, **altered, version=record.version + 1) if altered else record


def redact_link(link: RecordLink, clean: Redaction) -> RecordLink:
    values = {"verb": link.verb, "facets": link.facets}
    cleaned = clean(link.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(link, **altered) if altered else link


def redact_edit(edit: Edit, wanted: Collection[Ref], clean: Redaction) -> Edit:
    """Redact the old values in a log entry, if it is about one of the wanted things."""
    ref = get_edit_ref(edit)
    if ref not in wanted or edit.before is None:
        return edit
    before = clean(ref, edit.before)
    return edit if before == edit.before else replace(edit, before=before)


def get_edit_ref(edit: Edit) -> Ref:
    return Ref(edit.subject, edit.id or "")


def list_record_ids(stock: StorePage) -> list[str]:
    """Return the ids of all records that the page contains or refers to."""
    named = [record.id for record in stock.records]
    ends = [end for item in (*stock.records, *stock.links) for end in _list_references(item)]
    embedded = [each.id for items in stock.vectors.values() for each in items]
    return list(dict.fromkeys((*named, *ends, *stock.accesses, *embedded)))


def check_references(items: Iterable[Record | RecordLink], there: Container[str]) -> None:
    """Raise Conflict if a record or link refers to a record that is not in `there`."""
    for item in items:
        for end in _list_references(item):
            if end not in there:
                raise Conflict(
                    f"{item.ref.subject.capitalize()} {item.id} refers to {end}, which does not exist.",
                    hint="Copy the data again from the beginning.",
                    id=item.id,
                )


def is_vector_outdated(old: Record, new: Record) -> bool:
    """Return whether the vector of the old record no longer belongs to the new one."""
    return (old.text, old.name) != (new.text, new.name)


def _list_references(item: Record | RecordLink) -> tuple[str, ...]:
    if isinstance(item, RecordLink):
        return item.source, item.target
    return () if item.parent is None else (item.parent,)
