"""What changed, across all databases, and taking it back."""

from dataclasses import dataclass

from recollect.core.ports import Library, RecordStore
from recollect.core.projects import Project
from recollect.core.records import Batch, Change, Record, Ref
from recollect.core.text import clipped
from recollect.core.times import Clock
from recollect.core.undo import plan_undo, undone
from recollect.errors import InvalidInput, NotFound, RecollectError, Refused

PURGE = "purge"
LONGEST_NUMBER = 18  # digits; a longer one is no number of the log's
RECENT = 1_000  # changes looked through for the newest one that can be undone


@dataclass(frozen=True, slots=True)
class Entry:
    """A change with its project and a line that tells what it did."""

    project: str
    change: Change
    summary: str
    is_undone: bool

    @property
    def reference(self) -> str:
        return f"{self.project}:{self.change.seq}"


class Timeline:
    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock

    async def entries(self, project: str | None, limit: int) -> list[Entry]:
        """The newest changes of one project or of all, newest first."""
        found: list[Entry] = []
        for entry in await self._projects(project):
            try:
                _, store = await self._library.open(entry.name)
                changes = await store.changes(limit=limit, newest_first=True)
            except RecollectError:
                if project is not None:
                    raise
                continue  # one damaged project must not hide the others' log
            taken_back = undone(changes)
            found += [
                Entry(entry.name, c, await _summary(store, c), c.seq in taken_back) for c in changes
            ]
        found.sort(key=lambda item: (item.change.at, item.change.seq), reverse=True)
        return found[:limit]

    async def undo(self, reference: str | None, project: str | None, client: str) -> Entry:
        """Takes one change back, by default the newest in force, and returns what was undone."""
        name, change = (
            await self._newest(project)
            if reference is None
            else await self._referenced(reference, project)
        )
        _, store = await self._library.open(name)
        if change.seq in undone(await store.changes(after=change.seq - 1, limit=RECENT)):
            raise Refused(f"Change {name}:{change.seq} is undone already.", change=change.seq)
        steps = await plan_undo(store, change)
        summary = await _summary(store, change)
        await store.commit(Batch(steps, self._clock(), "undo", client, undoes=change.seq))
        return Entry(name, change, summary, is_undone=True)

    async def _projects(self, name: str | None) -> list[Project]:
        if name is not None:
            return [await self._library.project(name)]
        return await self._library.projects("active")

    async def _newest(self, project: str | None) -> tuple[str, Change]:
        candidates = [
            entry
            for entry in await self.entries(project, RECENT)
            if not entry.is_undone and entry.change.undoes is None and entry.change.edits
        ]
        if not candidates:
            raise Refused("There is no change to undo.", hint="`recollect log` shows them all.")
        return candidates[0].project, candidates[0].change

    async def _referenced(self, reference: str, project: str | None) -> tuple[str, Change]:
        name, _, number = reference.rpartition(":")
        name = name or project or ""
        if not number.isdecimal() or len(number) > LONGEST_NUMBER or not name:
            raise InvalidInput(
                f'"{clipped(reference)}" names no change.',
                hint="Give it as PROJECT:NUMBER, as `recollect log` shows it.",
                argument="change",
                value=clipped(reference),
            )
        _, store = await self._library.open(name)
        found = await store.changes(after=int(number) - 1, limit=1)
        if not found or found[0].seq != int(number):
            raise NotFound("change", reference, hint="`recollect log` shows what there is.")
        return name, found[0]


async def _summary(store: RecordStore, change: Change) -> str:
    """`+ entity Alice, + 2 observations`: what was touched, by operation and kind."""
    signs = {"insert": "+", "update": "~", "delete": "-", "restore": "+"}
    refs = [Ref(edit.subject, edit.id) for edit in change.edits if edit.id]
    records = {
        record.id: record
        for record in await store.get(
            [ref.id for ref in refs if ref.subject == "record"], include_deleted=True
        )
    }
    links = {
        link.id: link
        for link in await store.get_links(
            [ref.id for ref in refs if ref.subject == "link"], include_deleted=True
        )
    }
    groups: dict[tuple[str, str], list[str]] = {}
    for edit in change.edits:
        thing = records.get(edit.id or "") or links.get(edit.id or "")
        kind, name = (
            (thing.kind, thing.name or "")
            if isinstance(thing, Record)
            else ("relation", thing.verb)
            if thing
            else ("purged", "")
        )
        groups.setdefault((signs[edit.operation], kind), []).append(name)
    parts = [
        f"{sign} {kind} {names[0]}".rstrip()
        if len(names) == 1
        else f"{sign} {len(names)} × {kind}"
        + (f" ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if names[0] else "")
        for (sign, kind), names in groups.items()
    ]
    if change.tool == PURGE:
        return "removed for good"
    return clipped(", ".join(parts) or "what it touched was purged", 200)
