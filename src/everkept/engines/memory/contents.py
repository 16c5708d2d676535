"""All that a store of the reference engine holds, and what is left of it without some things."""

from collections.abc import Collection, Mapping, Sequence

from everkept.core.records import Change, Link, Record, Ref
from everkept.engines.planning import edge_of, name_of
from everkept.errors import Conflict
from everkept.values import Value, replace


class Contents(Value):
    """Records and links in the order of their age, and the log in its own."""

    records: Mapping[str, Record]
    links: Mapping[str, Link]
    changes: Sequence[Change]

    def with_belongings(self, refs: Collection[Ref]) -> tuple[set[str], set[str]]:
        """The ids of these records and of all below them; of these links and of those at them."""
        wanted = set(refs)
        doomed = {record_id for record_id, r in self.records.items() if r.ref in wanted}
        while below := {r.id for r in self.records.values() if r.parent in doomed} - doomed:
            doomed |= below
        links = {
            x.id for x in self.links.values() if x.ref in wanted or doomed & {x.source, x.target}
        }
        return doomed, links

    def without(self, records: Collection[str], links: Collection[str]) -> "Contents":
        """No trace of them is left."""
        gone = {"record": records, "link": links}
        return Contents(
            {k: r for k, r in self.records.items() if k not in records},
            {k: x for k, x in self.links.items() if k not in links},
            [
                replace(change, edits=tuple(e for e in change.edits if e.id not in gone[e.subject]))
                for change in self.changes
            ],
        )

    def check_unique(self) -> None:
        """Raises Conflict where two live ones stand for the same."""
        named = (r for r in self.records.values() if r.deleted_at is None)
        names = [name_of(r) for r in named if r.name_key is not None]
        if len(set(names)) < len(names):
            raise Conflict("Two records would stand for the same.")
        live = [x for x in self.links.values() if x.deleted_at is None]
        if len(set(map(edge_of, live))) < len(live):
            raise Conflict("Two links would say the same.")
