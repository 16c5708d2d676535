"""Export: all data as lines that git compares well, with pages for people."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TextIO

from everkept.core.context_text import as_quotation
from everkept.core.library import ReplicaUse
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project, Status, build_project_error, find_workspace_key, is_trash_name
from everkept.core.records import Record, RecordFilter, RecordLink
from everkept.core.sessions import USER_NOTE_PREFIX, is_private_name, parse_account_id, parse_private_name
from everkept.core.text import clip_text
from everkept.core.times import format_iso, format_minute
from everkept.errors import InvalidInput, ProjectOff, StoreUnreachable
from everkept.exchange.export_format import (
    ACCOUNT_FILE,
    ACCOUNTS_FOLDER,
    EXCLUDED_KINDS,
    HISTORY_FOLDER,
    LINKS_FILE,
    PROJECT_FILE,
    PROJECTS_FOLDER,
    README_FILE,
    RECORDS_FILE,
    USER_FOLDER,
    ExportDrafts,
    assign_folder_names,
    build_file_name,
    check_target,
    format_line,
)
from everkept.families.graph.server_memory import read_whole_graph
from everkept.families.history.ingest.conversations import TOMBSTONE
from everkept.families.history.model import CONVERSATION, TURN
from everkept.families.history.off_folders import OffFolders
from everkept.families.memories.model import MEMORY
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.values import Value, field, replace

TYPE_HEADINGS = {
    "procedural": "How things are done",
    "semantic": "What is so",
    "episodic": "What happened",
    "working": "For the moment",
}


def build_readme(projects: Sequence[Project], accounts: Sequence[str] = ()) -> str:
    lines = [
        "# What Everkept remembers",
        "",
        "Written by `everkept export`. To import it, run `everkept import` with the path of this",
        "folder. The `.jsonl` files are imported, with one record or link on each line. The pages",
        "next to them are the same for people, and are not imported.",
        "",
        "- `user/`: memories for all projects",
        f"- `projects/`: {', '.join(clip_text(project.name) for project in projects) or 'none'}",
        "- `history/`: past conversations, if they were requested",
    ]
    if accounts:
        lines.append("- `accounts/`: private data of accounts, as lines without pages")
    return "\n".join(lines) + "\n"


async def build_store_pages(store: RecordStore, title: str) -> dict[str, str]:
    """Return the pages of a project or of the user by name."""
    found: dict[str, str] = {}
    memories = await store.scan(RecordFilter(kinds=(MEMORY,)))
    if memories:
        found["memories.md"] = _join_lines(_format_memories(title, memories))
    entities = await store.scan(RecordFilter(kinds=(ENTITY,)), order="name")
    if entities:
        ids = tuple(entity.id for entity in entities)
        told = await store.scan(RecordFilter(kinds=(OBSERVATION,), parents=ids))
        links = await store.find_links(ids, direction="out", sources=(ENTITY,))
        found["graph.md"] = _join_lines(_format_graph(title, entities, told, links))
    return found


def render_conversation(head: Record, turns: Sequence[Record]) -> str:
    facts = [format_iso(head.effective_at)[:10], head.scope, str(head.facets.get("source") or "")]
    lines = [f"# {clip_text(head.name or 'A conversation', 120)}", ""]
    lines += [" · ".join(fact for fact in facts if fact), ""]
    for turn in sorted(turns, key=lambda t: (t.position is None, t.position or 0, t.effective_at, t.id)):
        when = format_minute(turn.effective_at)
        lines += [f"**{clip_text(turn.author or '?')}**, {when}", "", as_quotation(turn.text), ""]
    return _join_lines(lines)


def _format_memories(title: str, memories: Sequence[Record]) -> Iterator[str]:
    yield f"# Memories: {clip_text(title)}"
    for kind in dict.fromkeys([*TYPE_HEADINGS, *sorted({m.type or "" for m in memories})]):
        some = [memory for memory in memories if (memory.type or "") == kind]
        if some:
            yield from ("", f"## {TYPE_HEADINGS.get(kind, kind)}")
        for memory in some:
            yield from ("", as_quotation(memory.text), "", _format_traits(memory))


def _format_traits(memory: Record) -> str:
    traits = [
        memory.scope,
        format_iso(memory.effective_at)[:10],
        None if memory.importance is None else f"importance {memory.importance:g}",
        memory.author and f"by {clip_text(memory.author)}",
        memory.tags and "tags " + ", ".join(memory.tags),
        memory.facets.get("pinned") and "pinned",
        memory.facets.get("automatic") and "automatic",
        memory.facets.get("superseded_by") and f"replaced by {memory.facets['superseded_by']}",
        memory.id,
    ]
    return f"({'; '.join(str(trait) for trait in traits if trait)})"


def _format_graph(
    title: str, entities: Sequence[Record], told: Sequence[Record], links: Sequence[RecordLink]
) -> Iterator[str]:
    names = {entity.id: entity.name or entity.id for entity in entities}
    lines: dict[str, list[str]] = {}
    for observation in told:
        lines.setdefault(observation.parent or "", []).append(clip_text(observation.text, 2_000))
    for link in links:
        if link.target in names:
            reached = f"{clip_text(link.verb)} → {clip_text(names[link.target])}"
            lines.setdefault(link.source, []).append(reached)
    yield f"# Knowledge graph: {clip_text(title)}"
    for entity in entities:
        yield from ("", f"## {clip_text(names[entity.id])} ({clip_text(entity.type or '')})", "")
        yield from (f"- {line}" for line in lines.get(entity.id, ()))


def _join_lines(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


# Writes the files of one store, and returns the number of its records.
WriteStore = Callable[[ExportDrafts, str, RecordStore, Project | None], Awaitable[int]]
ExportParts = Literal["all", "lines", "pages"]  # lines are imported, pages are for people

SERVER_MEMORY_FILE = "memory.jsonl"
PAGE_RECORDS = 500  # per read
Progress = Callable[[int, int], None]


class ExportResult(Value, frozen=False):
    """Number of exported items. Projects that are `archived` or `off` are skipped.

    `accounts` are those whose private data is included.
    """

    folder: str
    projects: int = 0
    records: int = 0
    links: int = 0
    archived: list[str] = field(default_factory=list[str])
    off: list[str] = field(default_factory=list[str])
    accounts: list[str] = field(default_factory=list[str])


def require_complete(library: Library, noted: ReplicaUse) -> None:
    """Refuse an incomplete export, because people rely on it. A replica may be outdated."""
    if noted.is_degraded or library.condition.waiting:
        raise StoreUnreachable(
            "The database is unreachable or has pending writes, so the export would be incomplete.",
            hint="Try again when `everkept status` shows no pending writes.",
        )


async def export_library(
    library: Library,
    folder: Path,
    progress: Progress,
    *,
    project: str | None = None,
    history: bool = True,
    accounts: bool = True,
    parts: ExportParts = "all",
    write_store: WriteStore | None = None,
) -> ExportResult:
    """Export the library, or one project, into its own folder.

    With `write_store`, the files have another format. Private data of `accounts` and past conversations are optional.
    The files of an earlier export are replaced once everything is written.
    """
    old = await asyncio.to_thread(check_target, folder)
    off_folders = OffFolders(await library.list_off_periods(), find_workspace_key)
    writer = _ExportWriter(ExportResult(str(folder)), ExportDrafts(folder), progress, off_folders, parts, write_store)
    try:
        await writer.write(library, project, history=history, accounts=accounts)
        await asyncio.to_thread(writer.drafts.publish, old, writer.replaces)
        await asyncio.to_thread(writer.drafts.remove_stale)
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written ({error.strerror or error}).", hint="Check its permissions."
        ) from error
    finally:
        writer.drafts.discard()
    return writer.outcome


class _ExportWriter:
    def __init__(
        self,
        outcome: ExportResult,
        drafts: ExportDrafts,
        progress: Progress,
        off_folders: OffFolders,
        parts: ExportParts,
        write_store: WriteStore | None,
    ) -> None:
        self.outcome = outcome
        self.drafts = drafts
        self._progress = progress
        self._off_folders = off_folders
        self._parts = parts
        self._write_in_format = write_store
        self._total = 0
        self.replaces = ""  # prefix of an earlier export's files that are deleted

    async def write(self, library: Library, only: str | None, *, history: bool, accounts: bool) -> None:
        projects = await self._select_projects(library, only)
        self.drafts.begin()
        places: list[tuple[str, RecordStore, Project | None]] = []
        # Of all projects, so that a single one gets the same folder as among the others.
        folders = assign_folder_names(project.name for project in await _list_projects(library))
        for project in projects:
            _, store = await library.open(project.name)
            places.append((f"{PROJECTS_FOLDER}/{folders[project.name]}", store, project))
        if only is None:
            places.insert(0, (USER_FOLDER, await library.open_user_store(), None))
            if history:
                places.append((HISTORY_FOLDER, await library.open_history_store(), None))
            if accounts:
                homes = self._open_private_stores(library, history)
                places += [(place, store, None) async for place, store in homes]
        self._total = sum([sum((await store.count_live()).values()) for _, store, _ in places])
        for place, store, project in places:
            await self._write_store(library, place, store, project)
        if only is None and self._write_in_format is None:
            self._write_file(README_FILE, build_readme(projects, self.outcome.accounts))
        elif only is not None:
            is_other = self._write_in_format is not None
            self.replaces = f"{folders[only]}/" if is_other else f"{PROJECTS_FOLDER}/{folders[only]}/"
        self.outcome.projects = len(projects)

    async def _open_private_stores(self, library: Library, history: bool) -> AsyncIterator[tuple[str, RecordStore]]:
        """Open the private stores of existing accounts."""
        users: dict[str, str] = {}
        notes = await library.list_notes(USER_NOTE_PREFIX)
        for project in await library.list_projects("active"):
            found = parse_private_name(project.name)
            if found is None or (found.home == HISTORY_FOLDER and not history):
                continue
            known = parse_account_id(notes.get(USER_NOTE_PREFIX + found.user))
            _, store = await library.open(project.name)
            if known is not None and await store.count_live():
                users[found.user] = known
                yield f"{ACCOUNTS_FOLDER}/{build_file_name(found.user)}/{found.home}", store
        for user, known in users.items():
            self._write_file(
                f"{ACCOUNTS_FOLDER}/{build_file_name(user)}/{ACCOUNT_FILE}", json.dumps({"id": known}) + "\n"
            )
        self.outcome.accounts = sorted(users)

    async def _select_projects(self, library: Library, only: str | None) -> list[Project]:
        if only is not None:
            if is_private_name(only):
                raise build_project_error(only)
            project, _ = await library.open(only)
            if project.is_off:
                raise ProjectOff(project.name)
            return [project]
        self.outcome.archived = [p.name for p in await _list_projects(library, "archived")]
        active = await _list_projects(library, "active")
        self.outcome.off = [project.name for project in active if project.is_off]
        return [project for project in active if not project.is_off]

    async def _write_store(self, library: Library, place: str, store: RecordStore, project: Project | None) -> None:
        if self._write_in_format is not None:
            self.outcome.records += await self._write_in_format(self.drafts, place, store, project)
            self._progress(self.outcome.records, self._total)
            return
        if self._parts == "pages":
            await self._write_records(place, store, None, None)  # only counts
        else:
            await self._write_lines(library, place, store, project)
        if self._parts == "lines":
            return
        if place == HISTORY_FOLDER:
            await self._write_conversations(store)
        elif not place.startswith(f"{ACCOUNTS_FOLDER}/"):  # no readable pages of private data
            title = "The user" if project is None else project.name
            for name, text in (await build_store_pages(store, title)).items():
                self._write_file(f"{place}/{name}", text)

    async def _write_lines(self, library: Library, place: str, store: RecordStore, project: Project | None) -> None:
        if project is not None:
            folders = await library.list_workspaces(project)
            self._write_file(f"{place}/{PROJECT_FILE}", _format_project(project, folders))
        with ExitStack() as files:
            records = files.enter_context(self.drafts.open(f"{place}/{RECORDS_FILE}"))
            links = files.enter_context(self.drafts.open(f"{place}/{LINKS_FILE}"))
            await self._write_records(place, store, records, links)

    async def _write_records(
        self, place: str, store: RecordStore, records: TextIO | None, links: TextIO | None
    ) -> None:
        """Write and count the records and links of a store. Without files, only count them."""
        async for page in _read_pages(store):
            shown = [record for record in page if self._is_exported(place, record)]
            found = await store.find_links([r.id for r in shown if r.deleted_at is None], direction="out")
            if records is not None and links is not None:
                records.writelines(f"{format_line(record)}\n" for record in shown)
                links.writelines(f"{format_line(link)}\n" for link in found)
            self.outcome.records += len(shown)
            self.outcome.links += len(found)
            self._progress(self.outcome.records + self.outcome.links, self._total)

    async def _write_conversations(self, store: RecordStore) -> None:
        """Write a page for each conversation, in a folder for each month."""
        kept = await store.scan(RecordFilter(kinds=(CONVERSATION,)))
        for conversation in kept:
            if not self._is_exported(HISTORY_FOLDER, conversation):
                continue
            turns = await store.scan(RecordFilter(kinds=(TURN,), parents=(conversation.id,)))
            if turns:
                month = format_iso(conversation.effective_at)[:7]
                name = build_file_name(f"{format_iso(conversation.effective_at)[:10]} {conversation.id}")
                path = f"{HISTORY_FOLDER}/conversations/{month}/{name}.md"
                self._write_file(path, render_conversation(conversation, turns))

    def _is_exported(self, place: str, record: Record) -> bool:
        """Return whether to export a conversation. Those of projects that are off are skipped."""
        return place != HISTORY_FOLDER or self._off_folders.find_off_folder(record.scope) is None

    def _write_file(self, name: str, text: str) -> None:
        with self.drafts.open(name) as file:
            file.write(text)


async def write_server_memory(drafts: ExportDrafts, place: str, store: RecordStore, project: Project | None) -> int:
    """Write the graph as the file of the official memory server, and return the number of its lines."""
    graph = await read_whole_graph(store)
    lines = [{"type": "entity", **each} for each in graph["entities"]]
    lines += [{"type": "relation", **each} for each in graph["relations"]]
    if lines:
        with drafts.open(f"{get_store_folder(place, project)}/{SERVER_MEMORY_FILE}") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return len(lines)


def get_store_folder(place: str, project: Project | None) -> str:
    """Return the folder of a store in formats of other programs: that of the project, or `user`."""
    return USER_FOLDER if project is None else place.rpartition("/")[2]


async def _list_projects(library: Library, status: Status | None = None) -> list[Project]:
    """Return the projects, without private stores of accounts and the trash."""
    found = await library.list_projects(status)
    return [each for each in found if not is_private_name(each.name) and not is_trash_name(each.name)]


async def _read_pages(store: RecordStore) -> AsyncIterator[list[Record]]:
    """Yield all records in the order of arrival, so that parents come before children."""
    kinds = tuple(sorted({*await store.count_live()} - EXCLUDED_KINDS))
    seen: str | None = None
    while kinds:
        page = await store.scan(RecordFilter(kinds=kinds), after=seen, limit=PAGE_RECORDS)
        if not page:
            break
        yield page
        seen = page[-1].id
    # Deleted turns must not return in any place that imports this.
    tombstones = await store.scan(RecordFilter(kinds=(TURN,), types=(TOMBSTONE,), deleted=True))
    for start in range(0, len(tombstones), PAGE_RECORDS):
        # That time differs between places.
        yield [replace(g, deleted_at=g.created_at) for g in tombstones[start : start + PAGE_RECORDS]]


def _format_project(project: Project, folders: Sequence[str]) -> str:
    facts = {"name": project.name, "description": project.description, "folders": sorted(folders)}
    return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"
