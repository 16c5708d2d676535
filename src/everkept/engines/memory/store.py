"""Store of the reference engine: the whole port, in plain dictionaries."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from everkept.core import store as questions
from everkept.core.answers import AccessCount, PurgeResult, RecordTally, Sources, Subgraph, count_sources
from everkept.core.fallback_answers import (
    Fields,
    ask_for_subgraph,
    clip_context,
    compute_score,
    has_context,
    is_match,
    is_selected,
    split_fields,
    walk_by_hops,
)
from everkept.core.records import Batch, Change, Edit, Match, Record, RecordLink
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.times import Clock, read_clock
from everkept.engines.commit_plan import plan_commit
from everkept.engines.memory.contents import (
    ContentsView,
    DerivedData,
    StoreContents,
    apply_page,
    list_outdated_vectors,
    redact,
)
from everkept.errors import Conflict
from everkept.language.spellings import stem
from everkept.values import replace

if TYPE_CHECKING:  # only callers that pass vectors load numpy
    import numpy as np
    from numpy.typing import NDArray


class MemoryStore(TableStore):
    """A project's records, for the lifetime of the process."""

    def __init__(self, clock: Clock = read_clock) -> None:
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._links: dict[str, RecordLink] = {}
        self._changes: list[Change] = []
        self._seq = 0
        self._keys: dict[str, int] = {}  # change numbers by the key of the batch
        self._meaning = DerivedData(lambda record_id: self._records.get(record_id))

    async def commit(self, batch: Batch) -> Change:
        if done := self._find_committed(batch.key):
            return done
        if batch.revision not in (None, self._seq):
            message = "The data changed while this write was being prepared."
            raise Conflict(message, hint="Try again.", revision=batch.revision)
        planned = await plan_commit(batch, ContentsView(self._records, self._links))
        self._records |= planned.records
        self._links |= planned.links
        self._meaning.forget(planned.retold, vectors_only=True)
        if not planned.edits:
            return Change(0, batch.at, batch.tool, batch.client, batch.undoes, ())
        change = self._log(batch.at, batch.tool, batch.client, batch.undoes, planned.edits)
        if batch.key is not None:
            self._keys[batch.key] = change.seq
        return change

    async def _get_records(self, question: questions.GetRecords) -> list[Record]:
        found = (self._records.get(record_id) for record_id in dict.fromkeys(question.ids))
        return [r for r in found if r and (question.include_deleted or r.deleted_at is None)]

    async def _find_by_prefix(self, question: questions.FindByPrefix) -> list[Record]:
        found = [r for r in self._records.values() if r.id.startswith(question.prefix) and r.kind in question.kinds]
        return sorted(found, key=lambda record: record.id)[: question.limit]

    async def _get_links(self, question: questions.GetLinks) -> list[RecordLink]:
        found = (self._links.get(link_id) for link_id in dict.fromkeys(question.ids))
        return [x for x in found if x and (question.include_deleted or x.deleted_at is None)]

    async def _scan_records(self, question: questions.ScanRecords) -> list[Record]:
        found = [record for record in self._records.values() if is_selected(record, question.where)]
        if question.order == "name":
            found = [record for record in found if record.name_key is not None]
            found.sort(key=lambda record: (record.name_key or "", record.variant))
        elif question.order == "newest":
            found.reverse()
        if isinstance(question.after, str):
            age = {record_id: number for number, record_id in enumerate(self._records)}
            sign = -1 if question.order == "newest" else 1
            found = [r for r in found if question.after in age and sign * (age[r.id] - age[question.after]) > 0]
        elif question.after is not None:
            found = [r for r in found if (r.name_key or "", r.variant) > question.after]
        return found[: question.limit]

    async def _match_words(self, question: questions.MatchWords) -> list[Match]:
        scored = [
            (compute_score(fields, question.words, question.weights), record)
            for record in self._records.values()
            if is_selected(record, replace(question.where, deleted=False))
            and is_match(fields := self._get_fields(record), question.words)
        ]
        scored.sort(key=lambda pair: -pair[0])
        return [Match(record.id, record.parent, score) for score, record in scored[: question.limit]]

    async def _match_text(self, question: questions.MatchText) -> list[Match]:
        wanted = question.text.lower()
        found = [
            Match(r.id, r.parent, 2.0 if wanted in (r.name or "").lower() else 1.0)
            for r in self._records.values()
            if is_selected(r, replace(question.where, deleted=False))
            and any(wanted in part.lower() for part in (r.name or "", r.type or "", r.text))
        ]
        found.sort(key=lambda match: -match.score)
        return found[: question.limit]

    async def _find_links(self, question: questions.FindLinks) -> list[RecordLink]:
        wanted = set(question.ids)
        found = [
            link
            for link in self._links.values()
            if link.deleted_at is None
            and (not question.sources or self._records[link.source].kind in question.sources)
            and (
                (question.direction != "in" and link.source in wanted)
                or (question.direction != "out" and link.target in wanted)
            )
        ]
        found.sort(key=lambda link: link.created_at)
        return found[: question.limit]

    async def _read_subgraph(self, question: questions.ReadSubgraph) -> Subgraph:
        return await ask_for_subgraph(self, question.wanted)

    async def _walk_links(self, question: questions.WalkLinks) -> list[list[RecordLink]]:
        return await walk_by_hops(self.ask, question.ids, question.hops)

    async def _count_sources(self, question: questions.CountSources) -> Sources:
        links = await self.find_links(question.ids, direction="in")
        return count_sources([x for x in links if is_selected(self._records[x.source], question.where)], question.limit)

    async def _scan_links(self, question: questions.ScanLinks) -> list[RecordLink]:
        found = (x for x in self._links.values() if question.containing.lower() in x.verb.lower())
        return [x for x in found if question.deleted in (None, x.deleted_at is not None)]

    async def _count_live(self, _: questions.CountLive) -> Mapping[str, int]:
        counts = Counter(r.kind for r in self._records.values() if r.deleted_at is None)
        return {**counts, "link": sum(x.deleted_at is None for x in self._links.values())}

    async def _count_records(self, question: questions.CountRecords) -> int:
        return sum(is_selected(record, question.where) for record in self._records.values())

    async def _read_changes(self, question: questions.ReadChanges) -> list[Change]:
        ordered = reversed(self._changes) if question.newest_first else iter(self._changes)
        page = islice((change for change in ordered if change.seq > question.after), question.limit)
        return [c for c in page if question.most_edits is None or len(c.edits) <= question.most_edits]

    async def _read_history(self, question: questions.ReadHistory) -> list[tuple[int, Edit]]:
        wanted = {(ref.subject, ref.id) for ref in question.refs}
        return [
            (change.seq, edit)
            for change in self._changes
            if change.seq > question.after
            for edit in change.edits
            if (edit.subject, edit.id) in wanted
        ]

    async def _purge(self, upkeep: questions.Purge) -> PurgeResult:
        purge_set, links = self._contents.collect_belongings(upkeep.refs)
        self._replace_contents(self._contents.exclude(purge_set, links))
        self._meaning.forget(purge_set)
        if purge_set or links:
            self._log(self._clock(), "purge", "", None, ())
        return PurgeResult(len(purge_set), len(links), complete=True)

    async def _redact(self, upkeep: questions.Redact) -> PurgeResult:
        new = redact(self._contents, upkeep.refs, upkeep.clean)
        self._replace_contents(new.contents)
        self._meaning.forget([ref.id for ref in new.in_record], vectors_only=True)
        if touched := new.in_record | new.in_link | new.in_log:
            self._log(self._clock(), "redact", "", None, ())
        records = sum(ref.subject == "record" for ref in touched)
        return PurgeResult(records, len(touched) - records, complete=True)

    async def _get_revision(self, _: questions.GetRevision) -> int:
        return self._seq

    async def _get_stamp(self, _: questions.GetStamp) -> tuple[int, int]:
        return self._seq, self._meaning.moves

    async def _find_faults(self, _: questions.FindFaults) -> list[str]:
        return []

    async def _tally_records(self, question: questions.TallyRecords) -> list[RecordTally]:
        counted = Counter(
            (r.kind, r.scope, r.type, r.deleted_at is not None)
            for r in self._records.values()
            if r.kind in question.kinds
        )
        return [RecordTally(*traits, count) for traits, count in counted.items()]

    async def _list_scopes(self, question: questions.ListScopes) -> list[str]:
        return sorted({r.scope for r in self._list_live() if r.kind == question.kind})

    async def _list_authors(self, _: questions.ListAuthors) -> list[str]:
        return sorted({r.author for r in self._list_live() if r.author})

    async def _measure_words(self, question: questions.MeasureWords) -> Mapping[str, float]:
        live = [{word for field in self._get_fields(r) for word in field} for r in self._list_live()]
        return {word: sum(stem(word) in said for said in live) / max(len(live), 1) for word in question.words}

    async def _find_unembedded(self, question: questions.FindUnembedded) -> list[Record]:
        return self._list_pending(question.model, question.kinds)[: question.limit]

    async def _count_vectors(self, question: questions.CountVectors) -> tuple[int, int]:
        there = sum(
            self._meaning.has_vector(question.model, r.id) for r in self._list_live() if r.kind in question.kinds
        )
        return there, len(self._list_pending(question.model, question.kinds))

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        return self._meaning.put_vectors(upkeep.model, upkeep.items)

    async def _get_vectors(self, question: questions.GetVectors) -> "Mapping[str, NDArray[np.float32]]":
        return self._meaning.get_vectors(question.model, question.ids)

    async def _find_near(self, question: questions.FindNear) -> list[Match]:
        fitting = [record for record in self._records.values() if is_selected(record, question.where)]
        found = self._meaning.find_nearest(question.model, question.vector, fitting)[: question.limit]
        others = [self._records[i] for i in question.also if i in self._records]
        wanted = {match.id: match for match in self._meaning.find_nearest(question.model, question.vector, others)}
        wanted |= {match.id: match for match in found}
        return sorted(wanted.values(), key=lambda match: -match.score)

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        self._meaning.note_accesses(upkeep.counts, upkeep.at)

    async def _get_accesses(self, question: questions.GetAccesses) -> Mapping[str, AccessCount]:
        return self._meaning.get_accesses(question.ids)

    async def _list_most_accessed(self, question: questions.ListMostAccessed) -> Mapping[str, AccessCount]:
        return self._meaning.list_most_accessed(question.limit)

    async def _replicate(self, upkeep: questions.Replicate) -> None:
        old, new = self._contents, apply_page(self._contents, upkeep.stock)
        own = {change.seq for change in new.changes} - {change.seq for change in upkeep.stock.changes}
        self._keys = {key: seq for key, seq in self._keys.items() if seq in own}
        self._replace_contents(new)
        self._seq = new.changes[-1].seq if new.changes else 0
        self._meaning.forget(old.records.keys() - new.records.keys())
        self._meaning.forget(list_outdated_vectors(old.records, new.records), vectors_only=True)
        self._meaning.copy_page(upkeep.stock.vectors, upkeep.stock.accesses)

    async def _measure_size(self, _: questions.MeasureSize) -> int:
        return 0

    @property
    def _contents(self) -> StoreContents:
        return StoreContents(self._records, self._links, self._changes)

    def _replace_contents(self, contents: StoreContents) -> None:
        self._records, self._links = dict(contents.records), dict(contents.links)
        self._changes = list(contents.changes)

    def _find_committed(self, key: str | None) -> Change | None:
        """Return the logged change of the batch with this key."""
        seq = None if key is None else self._keys.get(key)
        if seq is None:
            return None
        return self._changes[bisect_left(self._changes, seq, key=lambda change: change.seq)]

    def _get_fields(self, record: Record) -> Fields:
        parent = self._records.get(record.parent or "")
        described = "\n".join(part for part in (record.type, record.text) if part)
        beside = (other for other in self._records.values() if has_context(record, other))
        said = (clip_context(o.text, before=(o.position or 0) < (record.position or 0)) for o in beside)
        around = ((parent and parent.name) or "", *said)
        return split_fields(record.name or "", described, "\n".join(around))

    def _list_live(self) -> list[Record]:
        return [record for record in self._records.values() if record.deleted_at is None]

    def _list_pending(self, model: str, kinds: Sequence[str]) -> list[Record]:
        live = (r for r in reversed(self._records.values()) if r.deleted_at is None and r.text)
        return [r for r in live if r.kind in kinds and not self._meaning.has_vector(model, r.id)]

    def _log(self, at: int, tool: str, client: str, undoes: int | None, edits: tuple[Edit, ...]) -> Change:
        self._seq += 1
        change = Change(self._seq, at, tool, client, undoes, edits)
        self._changes.append(change)
        return change

    answers: ClassVar[Answers] = {
        questions.GetRecords: _get_records,
        questions.FindByPrefix: _find_by_prefix,
        questions.GetLinks: _get_links,
        questions.ScanRecords: _scan_records,
        questions.MatchWords: _match_words,
        questions.MatchText: _match_text,
        questions.FindLinks: _find_links,
        questions.ReadSubgraph: _read_subgraph,
        questions.WalkLinks: _walk_links,
        questions.CountSources: _count_sources,
        questions.ScanLinks: _scan_links,
        questions.CountLive: _count_live,
        questions.CountRecords: _count_records,
        questions.ReadChanges: _read_changes,
        questions.ReadHistory: _read_history,
        questions.GetRevision: _get_revision,
        questions.GetStamp: _get_stamp,
        questions.FindFaults: _find_faults,
        questions.TallyRecords: _tally_records,
        questions.ListScopes: _list_scopes,
        questions.ListAuthors: _list_authors,
        questions.MeasureWords: _measure_words,
        questions.FindUnembedded: _find_unembedded,
        questions.CountVectors: _count_vectors,
        questions.GetVectors: _get_vectors,
        questions.FindNear: _find_near,
        questions.GetAccesses: _get_accesses,
        questions.ListMostAccessed: _list_most_accessed,
        questions.MeasureSize: _measure_size,
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Replicate: _replicate,
    }
