"""The reference engine's store: every promise of the port, in plain dictionaries."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from recollect.core.fitting import fits, hears
from recollect.core.matching import Fields, fields_of, heard, matches, score
from recollect.core.ports import Access, Direction, Embedded, Order, Purged, Redaction, Seen, Tally
from recollect.core.records import (
    AMENDABLE,
    Batch,
    Change,
    Delete,
    Edit,
    Insert,
    Link,
    Match,
    Record,
    Ref,
    Restore,
    Update,
    Weights,
    Where,
)
from recollect.core.stemming import stem
from recollect.core.times import Clock, now
from recollect.core.words import WordQuery
from recollect.engines.memory.meaning import Meaning
from recollect.engines.memory.redacting import rewrite, without_traces
from recollect.errors import Conflict

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray


class MemoryStore:
    """A project's records while the process lives."""

    def __init__(self, clock: Clock = now) -> None:
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._links: dict[str, Link] = {}
        self._changes: list[Change] = []
        self._seq = 0
        self._is_copying = False  # while a batch is applied that is copied
        self._meaning = Meaning(lambda record_id: self._records.get(record_id))

    async def commit(self, batch: Batch) -> Change:
        if batch.revision not in (None, self._seq):
            raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
        kept = dict(self._records), dict(self._links)
        self._is_copying = batch.copied
        try:
            edits = tuple(edit for step in batch.steps for edit in self._apply(step, batch.at))
        except BaseException:
            self._records, self._links = kept
            raise
        outdated = {"text", "name", "deleted_at"} if batch.derived else {"text", "name"}
        retold = [e.id for e in edits if e.id and e.before and e.before.keys() & outdated]
        self._meaning.forget(retold, vectors_only=True)
        if batch.derived:
            edits = without_traces(self._records, edits)
        if not edits:
            return Change(0, batch.at, batch.tool, batch.client, batch.undoes, ())
        return self._log(batch.at, batch.tool, batch.client, batch.undoes, edits)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        found = (self._records.get(record_id) for record_id in dict.fromkeys(ids))
        return [r for r in found if r and (include_deleted or r.deleted_at is None)]

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        found = (self._links.get(link_id) for link_id in dict.fromkeys(ids))
        return [x for x in found if x and (include_deleted or x.deleted_at is None)]

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        found = [record for record in self._records.values() if fits(record, where)]
        if order == "name":
            found = [record for record in found if record.name_key is not None]
            found.sort(key=lambda record: (record.name_key or "", record.variant))
        elif order == "newest":
            found.reverse()
        if isinstance(after, str):
            age = {record_id: number for number, record_id in enumerate(self._records)}
            sign = -1 if order == "newest" else 1
            found = [r for r in found if after in age and sign * (age[r.id] - age[after]) > 0]
        elif after is not None:
            found = [r for r in found if (r.name_key or "", r.variant) > after]
        return found[:limit]

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        scored = [
            (score(fields, words, weights), record)
            for record in self._records.values()
            if fits(record, replace(where, deleted=False))
            and matches(fields := self._fields(record), words)
        ]
        scored.sort(key=lambda pair: -pair[0])
        return [Match(record.id, record.parent, score) for score, record in scored[:limit]]

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        wanted = text.lower()
        found = [
            Match(r.id, r.parent, 2.0 if wanted in (r.name or "").lower() else 1.0)
            for r in self._records.values()
            if fits(r, replace(where, deleted=False))
            and any(wanted in part.lower() for part in (r.name or "", r.type or "", r.text))
        ]
        found.sort(key=lambda match: -match.score)
        return found[:limit]

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        wanted = set(ids)
        found = [
            link
            for link in self._links.values()
            if link.deleted_at is None
            and (not sources or self._records[link.source].kind in sources)
            and (
                (direction != "in" and link.source in wanted)
                or (direction != "out" and link.target in wanted)
            )
        ]
        found.sort(key=lambda link: link.created_at)
        return found[:limit]

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        found = (x for x in self._links.values() if containing.lower() in x.verb.lower())
        return [x for x in found if deleted in (None, x.deleted_at is not None)]

    async def count(self) -> Mapping[str, int]:
        counts = Counter(r.kind for r in self._records.values() if r.deleted_at is None)
        return {**counts, "link": sum(x.deleted_at is None for x in self._links.values())}

    async def how_many(self, where: Where) -> int:
        return sum(fits(record, where) for record in self._records.values())

    async def changes(
        self, *, after: int = 0, limit: int = 100, newest_first: bool = False
    ) -> list[Change]:
        ordered = reversed(self._changes) if newest_first else iter(self._changes)
        return list(islice((change for change in ordered if change.seq > after), limit))

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        wanted = {(ref.subject, ref.id) for ref in refs}
        return [
            (change.seq, edit)
            for change in self._changes
            if change.seq > after
            for edit in change.edits
            if (edit.subject, edit.id) in wanted
        ]

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        wanted = set(refs)
        doomed = {record_id for record_id, r in self._records.items() if r.ref in wanted}
        while below := {r.id for r in self._records.values() if r.parent in doomed} - doomed:
            doomed |= below
        links = {
            x.id for x in self._links.values() if x.ref in wanted or doomed & {x.source, x.target}
        }
        self._meaning.forget(list(doomed))
        self._records = {k: r for k, r in self._records.items() if k not in doomed}
        self._links = {k: x for k, x in self._links.items() if k not in links}
        gone = {"record": doomed, "link": links}
        self._changes = [
            replace(change, edits=tuple(e for e in change.edits if e.id not in gone[e.subject]))
            for change in self._changes
        ]
        if doomed or links:
            self._log(self._clock(), "purge", "", None, ())
        return Purged(len(doomed), len(links), complete=True)

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        new = rewrite(self._records, self._links, self._changes, refs, clean)
        self._records, self._links, self._changes = new.records, new.links, new.changes
        self._meaning.forget([ref.id for ref in new.in_record], vectors_only=True)
        if touched := new.in_record | new.in_link | new.in_log:
            self._log(self._clock(), "redact", "", None, ())
        records = sum(ref.subject == "record" for ref in touched)
        return Purged(records, len(touched) - records, complete=True)

    async def revision(self) -> int:
        return self._seq

    async def stamp(self) -> tuple[int, int]:
        return self._seq, self._meaning.moves

    async def check(self) -> list[str]:
        return []

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        counted = Counter(
            (r.kind, r.scope, r.type, r.deleted_at is not None)
            for r in self._records.values()
            if r.kind in kinds
        )
        return [Tally(*traits, count) for traits, count in counted.items()]

    async def scopes(self, kind: str) -> list[str]:
        return sorted({r.scope for r in self._kept() if r.kind == kind})

    async def authors(self) -> list[str]:
        return sorted({r.author for r in self._kept() if r.author})

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        live = [{word for field in self._fields(r) for word in field} for r in self._kept()]
        return {
            word: sum(stem(word) in said for said in live) / max(len(live), 1) for word in words
        }

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        return self._waiting(model, kinds)[:limit]

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        there = sum(self._meaning.has(model, r.id) for r in self._kept() if r.kind in kinds)
        return there, len(self._waiting(model, kinds))

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        return self._meaning.put(model, items)

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return self._meaning.of(model, ids)

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        fitting = [record for record in self._records.values() if fits(record, where)]
        found = self._meaning.near(model, vector, fitting)[:limit]
        others = [self._records[i] for i in also if i in self._records]
        wanted = {match.id: match for match in self._meaning.near(model, vector, others)}
        wanted |= {match.id: match for match in found}
        return sorted(wanted.values(), key=lambda match: -match.score)

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        self._meaning.note(counts, at)

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        return self._meaning.accesses(ids)

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        return self._meaning.most_accessed(limit)

    async def size(self) -> int:
        return 0

    def _apply(self, step: Any, at: int) -> list[Edit]:
        match step:
            case Insert(Record() as record):
                return [self._insert_record(record, at)]
            case Insert(Link() as link):
                return [self._insert_link(link)]
            case Update():
                return self._update(step, at)
            case Delete(ref):
                return self._delete(ref, at)
            case Restore(ref):
                return [self._restore(ref, at)]
            case _:
                raise TypeError(step)

    def _insert_record(self, record: Record, at: int) -> Edit:
        if record.parent is not None:
            self._live(record.parent)
        if record.id in self._records:
            raise Conflict(f"There is a record {record.id} already.")
        self._check_name(record)
        self._records[record.id] = replace(
            record,
            version=1,
            deleted_at=None,
            facets=_kept(record.facets),
            tags=tuple(dict.fromkeys(record.tags)),
        )
        self._touch(record.parent, at)
        return Edit("insert", "record", record.id)

    def _insert_link(self, link: Link) -> Edit:
        self._live(link.source)
        self._live(link.target)
        if link.id in self._links:
            raise Conflict(f"There is a link {link.id} already.")
        self._check_link(link)
        self._links[link.id] = replace(link, deleted_at=None, facets=_kept(link.facets))
        return Edit("insert", "link", link.id)

    def _update(self, step: Update, at: int) -> list[Edit]:
        unknown = set(step.values) - AMENDABLE
        if unknown:
            raise ValueError(f"not amendable: {sorted(unknown)}")
        record = self._live(step.id)
        if record.version != step.version:
            raise Conflict(f"The record {step.id} has changed.")
        values = dict(step.values)
        if "facets" in values:
            values["facets"] = _kept(values["facets"])
        if "tags" in values:
            values["tags"] = tuple(dict.fromkeys(values["tags"]))
        before = {
            name: getattr(record, name)
            for name, value in values.items()
            if getattr(record, name) != value
        }
        if not before and step.at is None:
            return []
        changed = replace(
            record,
            **{name: values[name] for name in before},
            updated_at=at if step.at is None else step.at,
            version=record.version + 1,
        )
        self._check_name(changed)
        self._records[step.id] = changed
        return [Edit("update", "record", step.id, before)]

    def _delete(self, ref: Ref, at: int) -> list[Edit]:
        if ref.subject == "link":
            link = self._links.get(ref.id)
            if link is None or link.deleted_at is not None:
                raise Conflict(f"The link {ref.id} is gone.")
            return [self._delete_link(link, at)]
        record = self._live(ref.id)
        family = [*self._descendants([record]), record]
        edits = [
            self._delete_link(link, at)
            for member in family
            for link in list(self._links.values())
            if link.deleted_at is None and member.id in (link.source, link.target)
        ]
        for member in family:
            self._records[member.id] = replace(self._records[member.id], deleted_at=at)
            edits.append(Edit("delete", "record", member.id, {"deleted_at": None}))
        self._touch(record.parent, at)
        return edits

    def _delete_link(self, link: Link, at: int) -> Edit:
        self._links[link.id] = replace(link, deleted_at=at)
        return Edit("delete", "link", link.id, {"deleted_at": None})

    def _restore(self, ref: Ref, at: int) -> Edit:
        things: Mapping[str, Record | Link] = (
            self._records if ref.subject == "record" else self._links
        )
        thing = things.get(ref.id)
        if thing is None or thing.deleted_at is None:
            raise Conflict(f"The {ref.subject} {ref.id} is not deleted.")
        before = {"deleted_at": thing.deleted_at}
        if isinstance(thing, Link):
            self._live(thing.source)
            self._live(thing.target)
            self._check_link(thing)
            self._links[ref.id] = replace(thing, deleted_at=None)
        else:
            if thing.parent is not None:
                self._live(thing.parent)
            self._check_name(thing)
            self._records[ref.id] = replace(thing, deleted_at=None)
            self._touch(thing.parent, at)
        return Edit("restore", ref.subject, ref.id, before)

    def _live(self, record_id: str) -> Record:
        record = self._records.get(record_id)
        if record is None or record.deleted_at is not None:
            raise Conflict(f"The record {record_id} has changed or is gone.")
        return record

    def _check_name(self, record: Record) -> None:
        if record.name_key is not None and any(
            other.id != record.id
            and other.deleted_at is None
            and (other.kind, other.name_key, other.variant, other.parent)
            == (record.kind, record.name_key, record.variant, record.parent)
            for other in self._records.values()
        ):
            raise Conflict(f"There is such a {record.kind} already.")

    def _check_link(self, link: Link) -> None:
        if any(
            other.id != link.id
            and other.deleted_at is None
            and (other.source, other.verb, other.target) == (link.source, link.verb, link.target)
            for other in self._links.values()
        ):
            raise Conflict("There is such a link already.")

    def _touch(self, record_id: str | None, at: int) -> None:
        record = None if self._is_copying else self._records.get(record_id or "")
        if record is not None and record.deleted_at is None and record.updated_at < at:
            self._records[record.id] = replace(record, updated_at=at)

    def _descendants(self, parents: Sequence[Record]) -> list[Record]:
        """The deepest first, and the oldest first among those of one depth."""
        above = {parent.id for parent in parents}
        children = [r for r in self._records.values() if r.parent in above and not r.deleted_at]
        return [*self._descendants(children), *children] if children else []

    def _fields(self, record: Record) -> Fields:
        parent = self._records.get(record.parent or "")
        described = "\n".join(part for part in (record.type, record.text) if part)
        beside = (other for other in self._records.values() if hears(record, other))
        said = (heard(o.text, before=(o.position or 0) < (record.position or 0)) for o in beside)
        around = ((parent and parent.name) or "", *said)
        return fields_of(record.name or "", described, "\n".join(around))

    def _kept(self) -> list[Record]:
        return [record for record in self._records.values() if record.deleted_at is None]

    def _waiting(self, model: str, kinds: Sequence[str]) -> list[Record]:
        live = (r for r in reversed(self._records.values()) if r.deleted_at is None and r.text)
        return [r for r in live if r.kind in kinds and not self._meaning.has(model, r.id)]

    def _log(
        self, at: int, tool: str, client: str, undoes: int | None, edits: tuple[Edit, ...]
    ) -> Change:
        self._seq += 1
        change = Change(self._seq, at, tool, client, undoes, edits)
        self._changes.append(change)
        return change


def _kept(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Facets are JSON, as they would come back from a disk."""
    return json.loads(json.dumps(facets))
