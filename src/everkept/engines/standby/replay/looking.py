"""What is in a store, as planning asks for it, read for a whole batch in a few questions."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import (
    Delete,
    Insert,
    Link,
    Record,
    Ref,
    Restore,
    Step,
    Update,
    Where,
)

_Name = tuple[str, str]  # kind and name_key


class StoreView:
    """Implements planning's View. What was read once is not read again."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, Link | None] = {}
        self._named: dict[_Name, list[Record]] = {}
        self._outgoing: dict[str, list[Link]] = {}

    async def read_ahead(self, steps: Sequence[Step]) -> None:
        """What a batch mentions."""
        refs = [ref for step in steps for ref in _mentioned(step)]
        await self._read_records(ref.id for ref in refs if ref.subject == "record")
        await self._read_links(ref.id for ref in refs if ref.subject == "link")
        # What is restored or moved brings its own with it.
        records = [record for record in self._records.values() if record]
        links = [link for link in self._links.values() if link]
        await self._read_records(end for link in links for end in (link.source, link.target))
        await self._read_records(record.parent for record in records if record.parent)
        inserted = [step.item for step in steps if isinstance(step, Insert)]
        links += [item for item in inserted if isinstance(item, Link)]
        await self._read_outgoing({link.source for link in links})
        records += [item for item in inserted if isinstance(item, Record)]
        names = {(each.kind, each.name_key) for each in records if each.name_key is not None}
        updated = [step for step in steps if isinstance(step, Update)]
        for step in updated:
            record, name_key = self._records.get(step.id), step.values.get("name_key")
            if record and name_key is not None:
                names.add((record.kind, name_key))
        await self._read_names(names)

    async def record(self, record_id: str) -> Record | None:
        await self._read_records([record_id])
        return self._records[record_id]

    async def link(self, link_id: str) -> Link | None:
        await self._read_links([link_id])
        return self._links[link_id]

    async def children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        return await self._store.scan(Where(parents=tuple(record_ids), deleted=None))

    async def links_at(self, record_id: str) -> Sequence[Link]:
        return await self._store.links([record_id])

    async def namesakes(self, record: Record) -> Sequence[Record]:
        if record.name_key is None:
            return []
        name = record.kind, record.name_key
        await self._read_names([name])
        place = record.variant, record.parent
        return [each for each in self._named[name] if (each.variant, each.parent) == place]

    async def doubles(self, link: Link) -> Sequence[Link]:
        await self._read_outgoing([link.source])
        edge = link.verb, link.target
        return [each for each in self._outgoing[link.source] if (each.verb, each.target) == edge]

    async def _read_records(self, ids: Iterable[str]) -> None:
        if new := [each for each in dict.fromkeys(ids) if each not in self._records]:
            self._records |= dict.fromkeys(new)
            self._records |= {r.id: r for r in await self._store.get(new, include_deleted=True)}

    async def _read_links(self, ids: Iterable[str]) -> None:
        if new := [each for each in dict.fromkeys(ids) if each not in self._links]:
            self._links |= dict.fromkeys(new)
            found = await self._store.get_links(new, include_deleted=True)
            self._links |= {link.id: link for link in found}

    async def _read_names(self, names: Iterable[_Name]) -> None:
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for kind, name_key in names:
            if (kind, name_key) not in self._named:
                self._named[kind, name_key] = []
                keys[kind].append(name_key)
        for kind, wanted in keys.items():
            found = await self._store.scan(Where(kinds=(kind,), name_keys=tuple(wanted)))
            for record in found:
                self._named[kind, record.name_key or ""].append(record)

    async def _read_outgoing(self, sources: Iterable[str]) -> None:
        new = [each for each in dict.fromkeys(sources) if each not in self._outgoing]
        if new:
            self._outgoing |= {source: [] for source in new}
            for link in await self._store.links(new, direction="out"):
                self._outgoing[link.source].append(link)


def _mentioned(step: Step) -> list[Ref]:
    match step:
        case Insert(Record() as record):
            parent = [Ref("record", record.parent)] if record.parent else []
            return [record.ref, *parent]
        case Insert(Link() as link):
            return [link.ref, Ref("record", link.source), Ref("record", link.target)]
        case Update():
            return [Ref("record", step.id)]
        case Delete(ref) | Restore(ref):
            return [ref]
        case _:
            raise TypeError(step)
