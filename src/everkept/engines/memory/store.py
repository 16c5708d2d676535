"""The reference engine's store: every promise of the port, in plain dictionaries."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everkept.core.copies import Stock
from everkept.core.fitting import fits, hears
from everkept.core.matching import Fields, fields_of, heard, matches, score
from everkept.core.ports import Access, Direction, Embedded, Order, Purged, Redaction, Seen, Tally
from everkept.core.records import (
    Batch,
    Change,
    Edit,
    Link,
    Match,
    Record,
    Ref,
    Weights,
    Where,
)
from everkept.core.subgraphs import Selection, Subgraph, ask_for_subgraph
from everkept.core.times import Clock, now
from everkept.core.walking import Hops, Sources, hop_by_hop, sources_in
from everkept.engines.memory.contents import Contents
from everkept.engines.memory.meaning import Meaning
from everkept.engines.memory.redacting import rewrite
from everkept.engines.memory.restocking import restocked, retold
from everkept.engines.memory.viewing import Held
from everkept.engines.planning import plan
from everkept.errors import Conflict
from everkept.language.stems import stem
from everkept.language.words import WordQuery
from everkept.values import replace

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
        self._keys: dict[str, int] = {}  # of batches, with the number of their change
        self._meaning = Meaning(lambda record_id: self._records.get(record_id))

    async def commit(self, batch: Batch) -> Change:
        if done := self._done(batch.key):
            return done
        if batch.revision not in (None, self._seq):
            raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
        planned = await plan(batch, Held(self._records, self._links))
        self._records |= planned.records
        self._links |= planned.links
        self._meaning.forget(planned.retold, vectors_only=True)
        if not planned.edits:
            return Change(0, batch.at, batch.tool, batch.client, batch.undoes, ())
        change = self._log(batch.at, batch.tool, batch.client, batch.undoes, planned.edits)
        if batch.key is not None:
            self._keys[batch.key] = change.seq
        return change

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

    async def subgraph(self, wanted: Selection) -> Subgraph:
        return await ask_for_subgraph(self, wanted)

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await hop_by_hop(self.links, ids, hops)

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        links = await self.links(ids, direction="in")
        return sources_in([x for x in links if fits(self._records[x.source], where)], limit)

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        found = (x for x in self._links.values() if containing.lower() in x.verb.lower())
        return [x for x in found if deleted in (None, x.deleted_at is not None)]

    async def count(self) -> Mapping[str, int]:
        counts = Counter(r.kind for r in self._records.values() if r.deleted_at is None)
        return {**counts, "link": sum(x.deleted_at is None for x in self._links.values())}

    async def how_many(self, where: Where) -> int:
        return sum(fits(record, where) for record in self._records.values())

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        ordered = reversed(self._changes) if newest_first else iter(self._changes)
        page = islice((change for change in ordered if change.seq > after), limit)
        return [c for c in page if most_edits is None or len(c.edits) <= most_edits]

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
        doomed, links = self._contents.with_belongings(refs)
        self._hold(self._contents.without(doomed, links))
        self._meaning.forget(doomed)
        if doomed or links:
            self._log(self._clock(), "purge", "", None, ())
        return Purged(len(doomed), len(links), complete=True)

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        new = rewrite(self._contents, refs, clean)
        self._hold(new.contents)
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

    async def restock(self, stock: Stock) -> None:
        old, new = self._contents, restocked(self._contents, stock)
        own = {change.seq for change in new.changes} - {change.seq for change in stock.changes}
        self._keys = {key: seq for key, seq in self._keys.items() if seq in own}
        self._hold(new)
        self._seq = new.changes[-1].seq if new.changes else 0
        self._meaning.forget(old.records.keys() - new.records.keys())
        self._meaning.forget(retold(old.records, new.records), vectors_only=True)
        self._meaning.take_over(stock.vectors, stock.accesses)

    async def size(self) -> int:
        return 0

    @property
    def _contents(self) -> Contents:
        return Contents(self._records, self._links, self._changes)

    def _hold(self, contents: Contents) -> None:
        self._records, self._links = dict(contents.records), dict(contents.links)
        self._changes = list(contents.changes)

    def _done(self, key: str | None) -> Change | None:
        """What the batch of this key has changed, as the log has it now."""
        seq = None if key is None else self._keys.get(key)
        if seq is None:
            return None
        return self._changes[bisect_left(self._changes, seq, key=lambda change: change.seq)]

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
