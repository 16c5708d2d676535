"""A line for each change that tells what it did."""

from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Change, Edit, Link, Record, Ref
from everkept.core.text import clipped
from everkept.values import Value

PURGE = "purge"
REDACT = "redact"
LONGEST = 200  # characters of a summary
LONGEST_TEXT = 60  # characters of a text in it
MOST_NAMES = 3
SESSION = "session"  # the kind of the records that conversations have
_FOR_GOOD = {PURGE: "removed for good", REDACT: "secrets removed for good"}
_SIGNS = {"insert": "+", "update": "~", "delete": "-", "restore": "+"}


async def summaries(store: RecordStore, changes: Sequence[Change]) -> list[str]:
    """`+ entity Alice, + 2 × observation on Alice` and the like, asked for all at once."""
    refs = {Ref(e.subject, e.id) for change in changes for e in change.edits if e.id}
    records = await store.get([r.id for r in refs if r.subject == "record"], include_deleted=True)
    links = await store.get_links([r.id for r in refs if r.subject == "link"], include_deleted=True)
    known = {record.id: record for record in records}
    ends = {record.parent for record in records if record.parent}
    ends |= {end for link in links for end in (link.source, link.target)}
    for record in await store.get(list(ends - known.keys()), include_deleted=True):
        known[record.id] = record
    told = _Told(known, {link.id: link for link in links})
    return [told.summary(change) for change in changes]


class _Named(Value):
    """A thing as a summary speaks of it; the owner is what it hangs on."""

    kind: str
    name: str = ""
    owner: str = ""


class _Told:
    def __init__(self, records: dict[str, Record], links: dict[str, Link]) -> None:
        self._records = records
        self._links = links

    def summary(self, change: Change) -> str:
        if change.tool in _FOR_GOOD:
            return _FOR_GOOD[change.tool]
        groups: dict[tuple[str, str], list[_Named]] = {}
        told = [self._named(edit) for edit in change.edits]
        # A session is begun by the first memory of it, which is what somebody did.
        is_beside = any(named.kind != SESSION for named in told)
        for edit, named in zip(change.edits, told, strict=True):
            if is_beside and named.kind == SESSION:
                continue
            groups.setdefault((_SIGNS[edit.operation], named.kind), []).append(named)
        parts = [f"{sign} {_counted(kind, things)}" for (sign, kind), things in groups.items()]
        return clipped(", ".join(parts) or "what it touched was purged", LONGEST)

    def _named(self, edit: Edit) -> _Named:
        thing = (self._records if edit.subject == "record" else self._links).get(edit.id or "")
        if thing is None:
            return _Named("purged")
        if isinstance(thing, Link):
            ends = self._name(thing.source), thing.verb, self._name(thing.target)
            return _Named("relation", " ".join(ends))
        if thing.parent is None:
            return _Named(thing.kind, self._name(thing.id))
        text = clipped(thing.name or thing.text, LONGEST_TEXT)
        return _Named(thing.kind, f'"{text}"', self._name(thing.parent))

    def _name(self, record_id: str) -> str:
        record = self._records.get(record_id)
        return clipped((record and (record.name or record.text)) or record_id, LONGEST_TEXT)


def _counted(kind: str, things: Sequence[_Named]) -> str:
    owners = list(dict.fromkeys(thing.owner for thing in things if thing.owner))
    where = f"{kind} on {_listed(owners)}" if owners else kind
    if len(things) == 1:
        return f"{where}{':' if owners else ''} {things[0].name}".rstrip()
    names = _listed([thing.name for thing in things])
    return f"{len(things)} × {where}" + (f" ({names})" if names and len(owners) < 2 else "")


def _listed(names: Sequence[str]) -> str:
    shown = [name for name in names[:MOST_NAMES] if name]
    return ", ".join(shown + ["…"] * (len(names) > MOST_NAMES and bool(shown)))
