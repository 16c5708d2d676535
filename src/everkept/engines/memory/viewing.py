"""What the reference engine holds, as whoever plans a commit asks for it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from everkept.core.records import Link, Record
from everkept.engines.planning import Edge, Name, edge_of, name_of


class Held:
    """A view of the dictionaries as they are while one commit is planned.

    It never suspends, so that no other task comes between the reading and the writing.
    """

    def __init__(self, records: Mapping[str, Record], links: Mapping[str, Link]) -> None:
        self._records = records
        self._links = links

    async def record(self, record_id: str) -> Record | None:
        return self._records.get(record_id)

    async def link(self, link_id: str) -> Link | None:
        return self._links.get(link_id)

    async def children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        found = [born for record_id in record_ids for born in self._below.get(record_id, ())]
        return [record for _, record in sorted(found, key=lambda born: born[0])]

    async def links_at(self, record_id: str) -> Sequence[Link]:
        return self._at.get(record_id, ())

    async def namesakes(self, record: Record) -> Sequence[Record]:
        return self._named.get(name_of(record), ())

    async def doubles(self, link: Link) -> Sequence[Link]:
        return self._joined.get(edge_of(link), ())

    @cached_property
    def _below(self) -> Mapping[str | None, Sequence[tuple[int, Record]]]:
        """Each with how many are older."""
        below: defaultdict[str | None, list[tuple[int, Record]]] = defaultdict(list)
        for age, record in enumerate(self._records.values()):
            below[record.parent].append((age, record))
        return below

    @cached_property
    def _at(self) -> Mapping[str, Sequence[Link]]:
        at: defaultdict[str, list[Link]] = defaultdict(list)
        for link in self._links.values():
            for end in {link.source, link.target}:
                at[end].append(link)
        return at

    @cached_property
    def _named(self) -> Mapping[Name, Sequence[Record]]:
        named: defaultdict[Name, list[Record]] = defaultdict(list)
        for record in self._records.values():
            if record.deleted_at is None and record.name_key is not None:
                named[name_of(record)].append(record)
        return named

    @cached_property
    def _joined(self) -> Mapping[Edge, Sequence[Link]]:
        joined: defaultdict[Edge, list[Link]] = defaultdict(list)
        for link in self._links.values():
            if link.deleted_at is None:
                joined[edge_of(link)].append(link)
        return joined
