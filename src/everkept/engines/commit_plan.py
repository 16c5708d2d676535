"""What a batch makes of the records and links that are there, for engines without a commit of
their own: the caller reads, this decides, and the caller writes all of it or nothing."""

import json
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from everkept.core.answers import Stock
from everkept.core.ports import Redaction
from everkept.core.records import (
    AMENDABLE,
    Batch,
    Delete,
    Edit,
    Insert,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
)
from everkept.errors import Conflict
from everkept.values import Value, field, replace

Name = tuple[str, str | None, str, str | None]
Edge = tuple[str, str, str]
# A vector belongs to the words it was made from.
_EMBEDDED = frozenset(("text", "name"))


class View(Protocol):
    """What is stored before the batch. A view may read ahead; it is asked for one at a time."""

    async def record(self, record_id: str) -> Record | None:
        """Live or deleted."""
        ...

    async def link(self, link_id: str) -> Link | None:
        """Live or deleted."""
        ...

    async def children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        """Of all of these, live or deleted, the oldest first."""
        ...

    async def links_at(self, record_id: str) -> Sequence[Link]:
        """Live or deleted, of either direction, the oldest first."""
        ...

    async def namesakes(self, record: Record) -> Sequence[Record]:
        """Live ones of the same kind, name_key, variant and parent."""
        ...

    async def doubles(self, link: Link) -> Sequence[Link]:
        """Live ones of the same source, verb and target."""
        ...


class Plan(Value, frozen=False):
    """What is to be written: whole records and links by id, in the order of their first mention.

    `fresh` are the ids of those that are new, in the order of their age.
    """

    edits: tuple[Edit, ...] = ()
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    links: dict[str, Link] = field(default_factory=dict[str, Link])
    before: dict[str, Record] = field(default_factory=dict[str, Record])  # those that were there
    fresh: list[Ref] = field(default_factory=list[Ref])
    # Records whose vector was made of a text or name that is no longer theirs.
    retold: set[str] = field(default_factory=set[str])


class Ages(NamedTuple):
    """Of those that are new, by id."""

    records: dict[str, int]
    links: dict[str, int]


def ages_of(fresh: Iterable[Ref], last: int) -> Ages:
    """Behind the `last` one that is there, in their order."""
    ages = {ref: last + number for number, ref in enumerate(fresh, 1)}
    return Ages(
        {ref.id: age for ref, age in ages.items() if ref.subject == "record"},
        {ref.id: age for ref, age in ages.items() if ref.subject == "link"},
    )


async def plan(batch: Batch, view: View) -> Plan:
    """Raises Conflict where the batch does not fit what is stored."""
    planner = Planner(batch, view)
    edits = [edit for step in batch.steps for edit in await planner.apply(step)]
    return await planner.finish(edits)


class Planner:
    """The view, and over it what the steps so far have made of it."""

    def __init__(self, batch: Batch, view: View) -> None:
        self._batch = batch
        self._view = view
        self._seen: dict[str, Record] = {}  # as they were before the batch
        self._named: dict[Name, str] = {}  # who was the last in the batch to get the name
        self._joined: dict[Edge, str] = {}  # likewise
        # Of what is fresh, with its number: below a record, and at a record.
        self._below: defaultdict[str | None, list[tuple[int, str]]] = defaultdict(list)
        self._at: defaultdict[str, list[str]] = defaultdict(list)
        self._touched: dict[str, None] = {}
        self._plan = Plan()

    async def finish(self, edits: Sequence[Edit]) -> Plan:
        for record_id in self._touched:
            record = await self.record(record_id)
            if record and record.updated_at < self._batch.at:
                self._put(replace(record, updated_at=self._batch.at))
        self._plan.edits = tuple(edits)
        return self._plan

    async def apply(self, step: Step) -> list[Edit]:
        match step:
            case Insert(Record() as record):
                return [await self._insert_record(record)]
            case Insert(Link() as link):
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
            await self._live(record.parent)
        if await self.record(record.id):
            raise Conflict(f"There is a record {record.id} already.", id=record.id)
        await self._check_name(record)
        new = replace(
            record,
            version=1,
            deleted_at=None,
            facets=_as_json(record.facets),
            tags=tuple(dict.fromkeys(record.tags)),
        )
        self._put(new)
        self._below[record.parent].append((len(self._plan.fresh), record.id))
        self._plan.fresh.append(record.ref)
        await self._touch(record.parent)
        return Edit("insert", "record", record.id)

    async def _insert_link(self, link: Link) -> Edit:
        await self._live(link.source)
        await self._live(link.target)
        if await self.link(link.id):
            raise Conflict(f"There is a link {link.id} already.", id=link.id)
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
        record = await self._live(step.id)
        if record.version != step.version:
            raise Conflict(f"The record {step.id} has changed.", id=step.id)
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
        self._put(changed)
        if before.keys() & _EMBEDDED:
            self._plan.retold.add(step.id)
        return [Edit("update", "record", step.id, {} if self._batch.derived else before)]

    async def _delete(self, ref: Ref) -> list[Edit]:
        if ref.subject == "link":
            link = await self.link(ref.id)
            if link is None or link.deleted_at is not None:
                raise Conflict(f"The link {ref.id} is gone.", id=ref.id)
            return [self._delete_link(link)]
        record = await self._live(ref.id)
        family = [*await self._descendants(record), record]
        edits = [
            self._delete_link(link)
            for member in family
            for link in await self._links_at(member.id)
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
        self._put(replace(record, deleted_at=self._batch.at))

    def _delete_link(self, link: Link) -> Edit:
        self._put_link(replace(link, deleted_at=self._batch.at))
        return Edit("delete", "link", link.id, {"deleted_at": None})

    async def _restore(self, ref: Ref) -> Edit:
        thing = await (self.record if ref.subject == "record" else self.link)(ref.id)
        if thing is None or thing.deleted_at is None:
            raise Conflict(f"The {ref.subject} {ref.id} is not deleted.", id=ref.id)
        if isinstance(thing, Link):
            await self._live(thing.source)
            await self._live(thing.target)
            await self._check_link(thing)
            self._put_link(replace(thing, deleted_at=None))
        else:
            if thing.parent is not None:
                await self._live(thing.parent)
            await self._check_name(thing)
            self._put(replace(thing, deleted_at=None))
            await self._touch(thing.parent)
        return Edit("restore", ref.subject, ref.id, {"deleted_at": thing.deleted_at})

    async def _live(self, record_id: str) -> Record:
        record = await self.record(record_id)
        if record is None or record.deleted_at is not None:
            raise Conflict(f"The record {record_id} has changed or is gone.", id=record_id)
        return record

    async def _check_name(self, record: Record) -> None:
        if record.name_key is None:
            return
        made, name = self._plan.records, name_of(record)
        others = {r.id for r in await self._view.namesakes(record) if r.id not in made}
        last = self._named.get(name)
        if last is not None and made[last].deleted_at is None and name_of(made[last]) == name:
            others.add(last)
        if others - {record.id}:
            raise Conflict(
                f"There is such a {record.kind} already.", kind=record.kind, name=record.name
            )

    async def _check_link(self, link: Link) -> None:
        made = self._plan.links
        others = {x.id for x in await self._view.doubles(link) if x.id not in made}
        last = self._joined.get(edge_of(link))
        if last is not None and made[last].deleted_at is None:
            others.add(last)
        if others - {link.id}:
            raise Conflict("There is such a link already.", verb=link.verb)

    async def _touch(self, record_id: str | None) -> None:
        if record_id is None or self._batch.copied:
            return
        record = await self.record(record_id)
        if record and record.deleted_at is None:
            self._touched[record_id] = None

    async def _descendants(self, record: Record) -> list[Record]:
        """The deepest first, and the oldest first among those of one depth."""
        depths: list[list[Record]] = []
        above = [record]
        while above := [r for r in await self._children(above) if r.deleted_at is None]:
            depths.append(above)
        return [member for depth in reversed(depths) for member in depth]

    async def record(self, record_id: str) -> Record | None:
        made = self._plan.records.get(record_id)
        found = made or await self._view.record(record_id)
        return found and self._met(found)

    async def link(self, link_id: str) -> Link | None:
        made = self._plan.links.get(link_id)
        return made or await self._view.link(link_id)

    async def _children(self, parents: Sequence[Record]) -> list[Record]:
        there = await self._view.children([parent.id for parent in parents])
        fresh = sorted(born for parent in parents for born in self._below.get(parent.id, ()))
        return [
            *(self._met(record) for record in there),
            *(self._plan.records[record_id] for _, record_id in fresh),
        ]

    async def _links_at(self, record_id: str) -> list[Link]:
        made = self._plan.links
        there = [made.get(x.id, x) for x in await self._view.links_at(record_id)]
        return [*there, *(made[link_id] for link_id in self._at.get(record_id, ()))]

    def _met(self, record: Record) -> Record:
        """What the batch has made of it, if anything."""
        made = self._plan.records.get(record.id)
        if made is None:
            self._seen[record.id] = record
        return made or record

    def _put(self, record: Record) -> None:
        self._plan.records[record.id] = record
        if record.id in self._seen:
            self._plan.before.setdefault(record.id, self._seen[record.id])
        if record.deleted_at is None:
            self._named[name_of(record)] = record.id

    def _put_link(self, link: Link) -> None:
        self._plan.links[link.id] = link
        if link.deleted_at is None:
            self._joined[edge_of(link)] = link.id


def name_of(record: Record) -> Name:
    """What only one live record may have, where it has a name_key."""
    return record.kind, record.name_key, record.variant, record.parent


def edge_of(link: Link) -> Edge:
    """What only one live link may say."""
    return link.source, link.verb, link.target


def _as_json(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Facets are JSON, as they would come back from a disk."""
    return json.loads(json.dumps(facets))


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


def redacted_record(record: Record, clean: Redaction) -> Record:
    values = {name: getattr(record, name) for name in sorted(AMENDABLE)}
    cleaned = clean(record.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(record, **altered, version=record.version + 1) if altered else record


def redacted_link(link: Link, clean: Redaction) -> Link:
    values = {"verb": link.verb, "facets": link.facets}
    cleaned = clean(link.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(link, **altered) if altered else link


def redacted_edit(edit: Edit, wanted: Collection[Ref], clean: Redaction) -> Edit:
    """The old values that the log tells of one of these things."""
    ref = told_of(edit)
    if ref not in wanted or edit.before is None:
        return edit
    before = clean(ref, edit.before)
    return edit if before == edit.before else replace(edit, before=before)


def told_of(edit: Edit) -> Ref:
    return Ref(edit.subject, edit.id or "")


def records_of(stock: Stock) -> list[str]:
    """The ids of all records that it says something of, or that something in it belongs to."""
    named = [record.id for record in stock.records]
    ends = [end for item in (*stock.records, *stock.links) for end in _ends(item)]
    embedded = [each.id for items in stock.vectors.values() for each in items]
    return list(dict.fromkeys((*named, *ends, *stock.accesses, *embedded)))


def check_belonging(items: Iterable[Record | Link], there: Container[str]) -> None:
    """Raises Conflict where one belongs to what will not be there."""
    for item in items:
        for end in _ends(item):
            if end not in there:
                raise Conflict(
                    f"The {item.ref.subject} {item.id} belongs to {end}, which is not here.",
                    id=item.id,
                )


def is_retold(old: Record, new: Record) -> bool:
    """Whether the vector of the one is none of the other."""
    return (old.text, old.name) != (new.text, new.name)


def _ends(item: Record | Link) -> tuple[str, ...]:
    if isinstance(item, Link):
        return item.source, item.target
    return () if item.parent is None else (item.parent,)
