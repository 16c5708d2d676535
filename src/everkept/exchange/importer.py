"""Import of an export. Nothing is stored twice."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from everkept.accounts.account_library import AccountStore
from everkept.core.commits import commit, retry
from everkept.core.paths import FolderExclusion
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import find_workspace_key
from everkept.core.records import AMENDABLE, Batch, Delete, Insert, Record, RecordFilter, RecordLink, Step, Update
from everkept.core.secrets import Masker
from everkept.core.sessions import USER_NOTE_PREFIX, parse_account_id, validate_account_name
from everkept.core.times import Clock
from everkept.errors import Conflict, NotFound
from everkept.exchange.export_format import ExportSection, read_export
from everkept.families.history.ingest.conversations import build_tombstone_id
from everkept.families.history.model import SYMBOL, TURN
from everkept.families.history.off_folders import OffFolders
from everkept.families.memories.memory_identity import compute_text_key
from everkept.families.memories.memory_record import build_top_up
from everkept.families.memories.model import MEMORY
from everkept.graph.entities import OBSERVATION, compute_observation_key
from everkept.values import Value, field, replace

T = TypeVar("T")
Progress = Callable[[int, int], None]

COMMIT_ROWS = 150  # small commits, so that other processes can write in between
PAUSE_SECONDS = 0.004  # between commits, for the same reason
IMPORT_TOOL = "import"


def split_chunks(items: Sequence[T], size: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """Split items into parts for one commit each. `size` counts the rows of an item."""
    chunk: list[T] = []
    rows = 0
    for item in items:
        if chunk and rows + size(item) > COMMIT_ROWS:
            yield chunk
            chunk, rows = [], 0
        chunk.append(item)
        rows += size(item)
    if chunk:
        yield chunk


_IdentityKey = tuple[str, str, str, str | None]  # kind, name key, variant and parent: the unique part


class ExportImport(Value, frozen=False):
    """Outcome of the records and links of an export.

    `forgotten` were deleted here and stay so; `older` are newer here. `left_out` belong to something that does not
    exist here, or to an excluded folder or a project that is off. `off` are skipped projects. `folders` now have a
    project, and `claimed` ones could get it. `accounts` are those with private data in it; data of `strangers`, unknown
    here, was skipped.
    """

    projects: list[str] = field(default_factory=list[str])
    off: list[str] = field(default_factory=list[str])
    folders: dict[str, str] = field(default_factory=dict[str, str])
    claimed: dict[str, str] = field(default_factory=dict[str, str])
    accounts: list[str] = field(default_factory=list[str])
    strangers: list[str] = field(default_factory=list[str])
    records: int = 0
    links: int = 0
    updated: int = 0
    unchanged: int = 0
    older: int = 0
    forgotten: int = 0
    left_out: int = 0
    masked: list[str] = field(default_factory=list[str])


async def import_export(
    library: Library,
    folder: Path,
    clock: Clock,
    progress: Progress,
    *,
    mask: bool = True,
    excluded: Sequence[str] = (),
    folders: bool = True,
    same: Collection[str] = (),
) -> ExportImport:
    """Import an export. Raise InvalidInput before any change if it is invalid.

    Conversations of `excluded` folders and projects that are off are skipped. With `folders`, a project gets its former
    folders, unless another project has them; otherwise they are only `claimed`. Private data goes only to the same
    account, and to those of the same name that the caller lists in `same`.
    """
    outcome = ExportImport()
    sections = _select_known_accounts(
        await asyncio.to_thread(read_export, folder),
        await library.list_notes(USER_NOTE_PREFIX),
        {validate_account_name(name) for name in same},
        outcome,
    )
    off_folders = OffFolders(await library.list_off_periods(), find_workspace_key)
    rules = _ImportRules(FolderExclusion(excluded), off_folders)
    masking = Masker(enabled=mask)
    masked = [_mask_section(each, masking) for each in sections]
    sections = [each for each in masked if await _is_writable(library, each, outcome)]
    outcome.masked = sorted(masking.kinds)
    total = sum(section.records + section.links for section in sections)
    for section in sections:
        store = await _open_store(library, section, outcome, folders=folders)
        of_section = _select_rules(section, rules)
        joining = StoreImport(store, clock, outcome, mask=mask, rules=of_section)
        await joining.import_section(section, lambda done: progress(done, total))
    return outcome


def _mask_section(section: ExportSection, masking: Masker) -> ExportSection:
    if section.name is None:
        return section
    return replace(section, name=masking.mask(section.name), description=masking.mask(section.description))


def _select_known_accounts(
    sections: Sequence[ExportSection], users: Mapping[str, str], same: Collection[str], outcome: ExportImport
) -> list[ExportSection]:
    """Skip private data of accounts that are unknown here, because another person may have the name. `users` are the
    notes about existing accounts.
    """
    named = {each.account: each.account_id for each in sections if each.account is not None}
    for name, then in named.items():
        known = parse_account_id(users.get(USER_NOTE_PREFIX + name))
        if known is None or (known != then and name not in same):
            outcome.strangers.append(name)
    return [each for each in sections if each.account not in outcome.strangers]


def _select_rules(section: ExportSection, rules: "_ImportRules") -> "_ImportRules | None":
    """Return the rules. Conversations of accounts have no folder on this machine, so none are skipped."""
    if not section.is_history:
        return None
    return rules if section.account is None else _ImportRules(FolderExclusion(()), OffFolders((), find_workspace_key))


async def _is_writable(library: Library, section: ExportSection, outcome: ExportImport) -> bool:
    """Return whether it may be written, which is checked first for all. Raise ProjectArchived."""
    if section.name is None:
        return True
    try:
        project = await library.get_project(section.name)
    except NotFound:
        return True
    if project.is_off:
        outcome.off.append(project.name)
        return False
    await library.open(project.name)
    return True


async def _open_store(library: Library, section: ExportSection, outcome: ExportImport, *, folders: bool) -> RecordStore:
    if section.account is not None:
        if section.account not in outcome.accounts:
            outcome.accounts.append(section.account)
        return AccountStore(library, "history" if section.is_history else "user", section.account)
    if section.name is None:
        return await (library.open_history_store() if section.is_history else library.open_user_store())
    try:
        project = await library.get_project(section.name)
    except NotFound:
        try:
            project = await library.create(section.name, section.description)
        except Conflict:  # another import was faster
            project = await library.get_project(section.name)
    _, store = await library.open(project.name)
    known = await library.list_workspaces(project)
    free = [path for path in section.folders if path not in known and not await library.find_workspace_project(path)]
    outcome.claimed |= dict.fromkeys(free, project.name)
    if folders:
        await link_claimed(library, outcome, free)
    outcome.projects.append(project.name)
    return store


async def link_claimed(library: Library, outcome: ExportImport, paths: Collection[str]) -> None:
    """Link claimed folders to the imported projects. The author of an export can claim any folder."""
    for path in paths:
        name = outcome.claimed.pop(path)
        project = await library.get_project(name)
        if (await library.link_workspace(path, project)).id == project.id:
            outcome.folders[path] = name


class StoreImport:
    """Import of one store, in commits that can each be the last."""

    def __init__(
        self,
        store: RecordStore,
        clock: Clock,
        outcome: ExportImport,
        *,
        mask: bool,
        rules: "_ImportRules | None" = None,
        dry_run: bool = False,
    ) -> None:
        """Use `rules` for past conversations. With `dry_run`, count what would change."""
        self._dry_run = dry_run
        self._planned: set[str] = set()  # ids that a dry run would have inserted
        self._store = store
        self._clock = clock
        self._outcome = outcome
        self._masking = Masker(enabled=mask)
        self._rules = rules
        self.here: dict[str, str | None] = {}  # maps ids of the export to other ids here, or to none

    async def import_section(self, section: ExportSection, report: Callable[[int], None]) -> None:
        for records in section.read_record_chunks(COMMIT_ROWS):
            await self.add_records(records)
            await self._report_and_pause(report)
        for links in section.read_link_chunks(COMMIT_ROWS):
            await self.add_links(links)
            await self._report_and_pause(report)

    async def add_records(self, chunk: Sequence[Record], links: Sequence[RecordLink] = ()) -> None:
        """Add records in one commit. `links` are those of deleted records, which must come with them."""
        await self._commit(lambda: self._plan_records(chunk, links))

    async def add_links(self, chunk: Sequence[RecordLink]) -> None:
        await self._commit(lambda: self._plan_links(chunk))

    async def _report_and_pause(self, report: Callable[[int], None]) -> None:
        told = self._outcome
        seen = told.records, told.links, told.updated, told.unchanged
        report(sum(seen) + told.older + told.forgotten + told.left_out)
        await asyncio.sleep(PAUSE_SECONDS)

    async def _commit(self, plan: Callable[[], Awaitable["_ImportPlan"]]) -> None:
        async def attempt() -> _ImportPlan:
            planned = await plan()
            steps, at = tuple(planned.steps), self._clock()
            if self._dry_run:
                self._planned |= {s.item.id for s in steps if isinstance(s, Insert) and isinstance(s.item, Record)}
            elif steps:
                is_derived = self._rules is not None
                batch = Batch(steps, at, IMPORT_TOOL, derived=is_derived, copied=True)
                await commit(self._store, batch)
            return planned

        planned = await retry(attempt)
        self.here |= planned.here
        for name, count in planned.counts.items():
            setattr(self._outcome, name, getattr(self._outcome, name) + count)

    async def _plan_records(self, chunk: Sequence[Record], links: Sequence[RecordLink] = ()) -> "_ImportPlan":
        planned = _ImportPlan()
        records = [self._prepare(record) for record in chunk if not self._is_excluded(record)]
        planned.count("left_out", len(chunk) - len(records))
        ids = [record.id for record in records]
        known = {r.id: r for r in await self._store.get(ids, include_deleted=True)}
        named = await self._find_same(records, known)
        unwanted = await self._find_forgotten_turns(records) | await self._find_forgotten(records, known)
        parents = {self.here.get(r.parent, r.parent) for r in records if r.parent}
        live = {record.id for record in await self._store.get([each for each in parents if each])} | self._planned
        deleted: list[Record] = []
        for record in records:
            here = {**self.here, **planned.here} if planned.here else self.here
            parent = here.get(record.parent, record.parent) if record.parent else None
            there = known.get(record.id)
            if there is not None:
                self._plan_update(record, there, planned)
            elif same := named.get(_get_identity(replace(record, parent=parent))):
                planned.here[record.id] = same.id
                live.add(same.id)
                self._plan_merge(record, same, planned)
            elif record.id in unwanted or (record.parent and parent not in live):
                planned.here[record.id] = None
                planned.count("forgotten" if record.id in unwanted else "left_out")
            else:
                new = replace(record, parent=parent, facets=_map_facets(record.facets, here))
                planned.steps.append(Insert(replace(new, deleted_at=None)))
                if new.name_key is not None:  # masking may have made it equal to another one
                    named[_get_identity(new)] = replace(new, version=1)
                if record.deleted_at is not None:
                    deleted.append(record)
                else:
                    live.add(record.id)
                planned.count("records")
        if deleted:
            ids = {record.id for record in deleted}
            of_deleted = await self._plan_links([link for link in links if link.source in ids], ids)
            planned.steps += [*of_deleted.steps, *(Delete(record.ref) for record in deleted)]
            planned.count("links", of_deleted.counts.get("links", 0))
        return planned

    def _plan_merge(self, record: Record, same: Record, planned: "_ImportPlan") -> None:
        """Add to a memory that exists here under another id what it lacks."""
        is_new = any(step == Insert(same) for step in planned.steps)
        steps: list[Step] = []
        if same.kind == MEMORY and not is_new:
            steps, _ = build_top_up(same, record, has_links=False)
        planned.steps += steps
        planned.count("updated" if steps else "unchanged")

    def _is_excluded(self, record: Record) -> bool:
        """Return whether its conversation must not be imported."""
        if self._rules is None:
            return False
        if self._rules.exclusion.is_excluded(record.scope):
            return True
        return bool(record.scope) and (
            self._rules.off_folders.find_off_folder(record.scope) is not None
            or (record.kind != SYMBOL and self._rules.off_folders.was_off(record.scope, record.effective_at))
        )

    async def _find_forgotten_turns(self, records: Sequence[Record]) -> set[str]:
        """Return turns that were deleted here, alone or with their conversation."""
        turns = [record for record in records if record.kind == TURN]
        if not turns:
            return set()
        tombstones = {build_tombstone_id(turn.id): turn.id for turn in turns}
        buried = await self._store.get(list(tombstones), include_deleted=True)
        heads = await self._store.get(list({turn.parent for turn in turns if turn.parent}))
        left_out = {head.id for head in heads if head.facets.get("left_out")}
        return {tombstones[tombstone.id] for tombstone in buried} | {
            turn.id for turn in turns if turn.parent in left_out
        }

    async def _find_same(
        self, records: Sequence[Record], known: Mapping[str, Record], *, deleted: bool = False
    ) -> dict[_IdentityKey, Record]:
        """Return what exists here under other ids, by its unique key; the newest of each."""
        new = [r for r in records if r.id not in known and r.name_key is not None]
        if not new:
            return {}
        where = RecordFilter(
            kinds=tuple({r.kind for r in new}), name_keys=tuple({r.name_key or "" for r in new}), deleted=deleted
        )
        found = await self._store.scan(where)
        return {_get_identity(r): r for r in sorted(found, key=lambda each: each.deleted_at or 0)}

    async def _find_forgotten(self, records: Sequence[Record], known: Mapping[str, Record]) -> set[str]:
        """Return what was deleted here under another id and not stored again since."""
        gone = await self._find_same(records, known, deleted=True)
        return {
            record.id
            for record in records
            if record.name_key is not None
            and (there := gone.get(_get_identity(self._with_local_parent(record)))) is not None
            and (there.deleted_at or 0) >= record.updated_at
        }

    def _with_local_parent(self, record: Record) -> Record:
        """Return the record under the parent that it has here."""
        parent = self.here.get(record.parent, record.parent) if record.parent else None
        return replace(record, parent=parent)

    def _plan_update(self, record: Record, there: Record, planned: "_ImportPlan") -> None:
        if there.deleted_at is not None:
            planned.here[record.id] = None
            planned.count("unchanged" if record.deleted_at is not None else "forgotten")
            return
        if record.deleted_at is not None and record.deleted_at > there.updated_at:  # deleted elsewhere since
            planned.steps.append(Delete(there.ref))
            planned.count("updated")
            return
        values = {name: getattr(record, name) for name in AMENDABLE if getattr(record, name) != getattr(there, name)}
        if record.updated_at > there.updated_at:
            planned.steps.append(Update(there.id, values, there.version, record.updated_at))
            planned.count("updated" if values else "unchanged")
        elif not values:
            planned.count("unchanged")
        elif record.updated_at == there.updated_at:  # a person has edited the file
            planned.steps.append(Update(there.id, values, there.version))
            planned.count("updated")
        else:
            planned.count("older")

    async def _plan_links(self, chunk: Sequence[RecordLink], inserted: Collection[str] = ()) -> "_ImportPlan":
        """Plan links between live records, and those that are `inserted` with them."""
        planned = _ImportPlan()
        links = [
            replace(
                link,
                source=self.here.get(link.source, link.source) or "",
                target=self.here.get(link.target, link.target) or "",
            )
            for link in chunk
        ]
        ends = list({end for link in links for end in (link.source, link.target) if end})
        live = {record.id for record in await self._store.get(ends)} | self._planned | set(inserted)
        known = {link.id for link in await self._store.get_links([link.id for link in links], include_deleted=True)}
        sources = [link.source for link in links if link.source in live]
        there = {_get_ends(link) for link in await self._store.find_links(sources, direction="out")}
        for link in links:
            if link.source not in live or link.target not in live:
                planned.count("left_out")
            elif link.id in known or _get_ends(link) in there:
                planned.count("unchanged")
            else:
                planned.steps.append(Insert(link))
                there.add(_get_ends(link))
                planned.count("links")
        return planned

    def _prepare(self, record: Record) -> Record:
        """Mask secrets, which another program's export may contain, and compute the unique key again, because the text
        may have been edited.
        """
        text = self._masking.mask(record.text)
        self._outcome.masked = sorted({*self._outcome.masked, *self._masking.kinds})
        if record.kind == MEMORY:
            return replace(record, text=text, name_key=compute_text_key(text))
        if record.kind == OBSERVATION and record.name_key == compute_observation_key(record.text):
            return replace(record, text=text, name_key=compute_observation_key(text))
        return replace(record, text=text)


class _ImportRules(Value):
    """Rules for conversations to skip."""

    exclusion: FolderExclusion
    off_folders: OffFolders


class _ImportPlan(Value, frozen=False):
    """Steps, with what to remember and count once they are committed."""

    steps: list[Step] = field(default_factory=list[Step])
    here: dict[str, str | None] = field(default_factory=dict[str, str | None])
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


def _get_identity(record: Record) -> _IdentityKey:
    return record.kind, record.name_key or "", record.variant, record.parent


def _get_ends(link: RecordLink) -> tuple[str, str, str]:
    return link.source, link.verb, link.target


def _map_facets(facets: Mapping[str, Any], here: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Map a facet that names another record to the record that exists here."""
    if not here:
        return facets
    return {name: here.get(value) or value if isinstance(value, str) else value for name, value in facets.items()}
