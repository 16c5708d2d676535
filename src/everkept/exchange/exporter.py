"""The export: everything as lines that git compares well, with pages beside them for people."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from everkept.accounts.account_library import no_project
from everkept.core.context_text import as_quotation
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project, Status, key_of_workspace
from everkept.core.records import Link, Record, Where
from everkept.core.sessions import USERS, account_id, home_of, is_home
from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.errors import InvalidInput, ProjectOff
from everkept.exchange.export_format import (
    ABOUT,
    ACCOUNT,
    ACCOUNTS,
    HISTORY,
    LEFT_OUT,
    LINKS,
    PROJECT,
    PROJECTS,
    RECORDS,
    USER,
    Drafts,
    checked_target,
    file_name,
    folder_names,
    line_of,
)
from everkept.families.history.ingest.conversations import FORGOTTEN
from everkept.families.history.model import CONVERSATION, TURN
from everkept.families.history.off_folders import Quiet
from everkept.families.memories.model import MEMORY
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.values import Value, field, replace

TYPES = {
    "procedural": "How things are done",
    "semantic": "What is so",
    "episodic": "What happened",
    "working": "For the moment",
}


def about(projects: Sequence[Project], accounts: Sequence[str] = ()) -> str:
    lines = [
        "# What Everkept remembers",
        "",
        "Written by `everkept export`; `everkept import` with the path of this folder takes it",
        "in. The `.jsonl` files are what is taken in, a record or a link on each line. The pages",
        "beside them say the same for people, and are not read.",
        "",
        "- `user/`: what holds in every project",
        f"- `projects/`: {', '.join(clipped(project.name) for project in projects) or 'none'}",
        "- `history/`: past conversations, where they were wanted",
    ]
    if accounts:
        lines.append("- `accounts/`: what is one account's alone, as lines without pages")
    return "\n".join(lines) + "\n"


async def of_store(store: RecordStore, title: str) -> dict[str, str]:
    """The pages of a project or of the user, by their names; none where there is nothing."""
    found: dict[str, str] = {}
    memories = await store.scan(Where(kinds=(MEMORY,)))
    if memories:
        found["memories.md"] = _text(_memories(title, memories))
    entities = await store.scan(Where(kinds=(ENTITY,)), order="name")
    if entities:
        ids = tuple(entity.id for entity in entities)
        told = await store.scan(Where(kinds=(OBSERVATION,), parents=ids))
        links = await store.links(ids, direction="out", sources=(ENTITY,))
        found["graph.md"] = _text(_graph(title, entities, told, links))
    return found


def render_conversation(head: Record, turns: Sequence[Record]) -> str:
    facts = [iso(head.at)[:10], head.scope, str(head.facets.get("source") or "")]
    lines = [f"# {clipped(head.name or 'A conversation', 120)}", ""]
    lines += [" · ".join(fact for fact in facts if fact), ""]
    for turn in sorted(turns, key=lambda t: (t.position is None, t.position or 0, t.at, t.id)):
        when = iso(turn.at)[:16].replace("T", " ")
        lines += [f"**{clipped(turn.author or '?')}**, {when}", "", as_quotation(turn.text), ""]
    return _text(lines)


def _memories(title: str, memories: Sequence[Record]) -> Iterator[str]:
    yield f"# Memories: {clipped(title)}"
    for kind in dict.fromkeys([*TYPES, *sorted({m.type or "" for m in memories})]):
        some = [memory for memory in memories if (memory.type or "") == kind]
        if some:
            yield from ("", f"## {TYPES.get(kind, kind)}")
        for memory in some:
            yield from ("", as_quotation(memory.text), "", _traits(memory))


def _traits(memory: Record) -> str:
    traits = [
        memory.scope,
        iso(memory.at)[:10],
        None if memory.importance is None else f"importance {memory.importance:g}",
        memory.author and f"by {clipped(memory.author)}",
        memory.tags and "tags " + ", ".join(memory.tags),
        memory.facets.get("pinned") and "pinned",
        memory.facets.get("automatic") and "automatic",
        memory.facets.get("superseded_by") and f"replaced by {memory.facets['superseded_by']}",
        memory.id,
    ]
    return f"({'; '.join(str(trait) for trait in traits if trait)})"


def _graph(
    title: str, entities: Sequence[Record], told: Sequence[Record], links: Sequence[Link]
) -> Iterator[str]:
    names = {entity.id: entity.name or entity.id for entity in entities}
    lines: dict[str, list[str]] = {}
    for observation in told:
        lines.setdefault(observation.parent or "", []).append(clipped(observation.text, 2_000))
    for link in links:
        if link.target in names:
            reached = f"{clipped(link.verb)} → {clipped(names[link.target])}"
            lines.setdefault(link.source, []).append(reached)
    yield f"# Knowledge graph: {clipped(title)}"
    for entity in entities:
        yield from ("", f"## {clipped(names[entity.id])} ({clipped(entity.type or '')})", "")
        yield from (f"- {line}" for line in lines.get(entity.id, ()))


def _text(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"


PAGE = 500  # records that are read at once
Progress = Callable[[int, int], None]


class Exported(Value, frozen=False):
    """How much was written. `archived` projects are not, and neither are those that are `off`.

    `accounts` are those whose own memories are in it.
    """

    folder: str
    projects: int = 0
    records: int = 0
    links: int = 0
    archived: list[str] = field(default_factory=list[str])
    off: list[str] = field(default_factory=list[str])
    accounts: list[str] = field(default_factory=list[str])


async def export(
    library: Library,
    folder: Path,
    progress: Progress,
    *,
    project: str | None = None,
    history: bool = True,
    accounts: bool = True,
) -> Exported:
    """Writes the library, or one project of it, into a folder of its own.

    What is of `accounts` alone can be left out, as past conversations can. What an earlier export
    has left there is replaced, once all of it is written.
    """
    old = await asyncio.to_thread(checked_target, folder)
    quiet = Quiet(await library.silences(), key_of_workspace)
    writer = _Writer(Exported(str(folder)), Drafts(folder), progress, quiet)
    try:
        await writer.write(library, project, history=history, accounts=accounts)
        await asyncio.to_thread(writer.drafts.settle, old, writer.replaces)
        await asyncio.to_thread(writer.drafts.sweep)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written ({error.strerror or error}).") from error
    finally:
        writer.drafts.discard()
    return writer.outcome


class _Writer:
    def __init__(self, outcome: Exported, drafts: Drafts, progress: Progress, quiet: Quiet) -> None:
        self.outcome = outcome
        self.drafts = drafts
        self._progress = progress
        self._quiet = quiet
        self._total = 0
        self.replaces = ""  # what the paths of an earlier export's files begin with that go

    async def write(
        self, library: Library, only: str | None, *, history: bool, accounts: bool
    ) -> None:
        projects = await self._chosen(library, only)
        self.drafts.begin()
        places: list[tuple[str, RecordStore, Project | None]] = []
        # Of all of them, so that one alone has the folder that it has among the others.
        folders = folder_names(project.name for project in await _projects(library))
        for project in projects:
            _, store = await library.open(project.name)
            places.append((f"{PROJECTS}/{folders[project.name]}", store, project))
        if only is None:
            places.insert(0, (USER, await library.user(), None))
            if history:
                places.append((HISTORY, await library.history(), None))
            if accounts:
                homes = self._homes(library, history)
                places += [(place, store, None) async for place, store in homes]
        self._total = sum([sum((await store.count()).values()) for _, store, _ in places])
        for place, store, project in places:
            await self._write_store(library, place, store, project)
        if only is None:
            self._put(ABOUT, about(projects, self.outcome.accounts))
        else:
            self.replaces = f"{PROJECTS}/{folders[only]}/"
        self.outcome.projects = len(projects)

    async def _homes(
        self, library: Library, history: bool
    ) -> AsyncIterator[tuple[str, RecordStore]]:
        """What is an account's alone; nothing that is left of one which was removed."""
        users: dict[str, str] = {}
        notes = await library.notes(USERS)
        for project in await library.projects("active"):
            found = home_of(project.name)
            if found is None or (found.home == HISTORY and not history):
                continue
            known = account_id(notes.get(USERS + found.user))
            _, store = await library.open(project.name)
            if known is not None and await store.count():
                users[found.user] = known
                yield f"{ACCOUNTS}/{file_name(found.user)}/{found.home}", store
        for user, known in users.items():
            self._put(f"{ACCOUNTS}/{file_name(user)}/{ACCOUNT}", json.dumps({"id": known}) + "\n")
        self.outcome.accounts = sorted(users)

    async def _chosen(self, library: Library, only: str | None) -> list[Project]:
        if only is not None:
            if is_home(only):
                raise no_project(only)
            project, _ = await library.open(only)
            if project.is_off:
                raise ProjectOff(project.name)
            return [project]
        self.outcome.archived = [p.name for p in await _projects(library, "archived")]
        active = await _projects(library, "active")
        self.outcome.off = [project.name for project in active if project.is_off]
        return [project for project in active if not project.is_off]

    async def _write_store(
        self, library: Library, place: str, store: RecordStore, project: Project | None
    ) -> None:
        if project is not None:
            folders = await library.workspaces_of(project)
            self._put(f"{place}/{PROJECT}", _facts_of(project, folders))
        with ExitStack() as files:
            records = files.enter_context(self.drafts.open(f"{place}/{RECORDS}"))
            links = files.enter_context(self.drafts.open(f"{place}/{LINKS}"))
            async for page in _pages(store):
                shown = [record for record in page if self._is_shown(place, record)]
                await self._write_page(store, shown, records, links)
        if place == HISTORY:
            await self._write_conversations(store)
        elif not place.startswith(f"{ACCOUNTS}/"):  # no pages of what others are not to read
            title = "The user" if project is None else project.name
            for name, text in (await of_store(store, title)).items():
                self._put(f"{place}/{name}", text)

    async def _write_page(
        self, store: RecordStore, page: Sequence[Record], records: TextIO, links: TextIO
    ) -> None:
        found = await store.links([r.id for r in page if r.deleted_at is None], direction="out")
        records.writelines(f"{line_of(record)}\n" for record in page)
        links.writelines(f"{line_of(link)}\n" for link in found)
        self.outcome.records += len(page)
        self.outcome.links += len(found)
        self._progress(self.outcome.records + self.outcome.links, self._total)

    async def _write_conversations(self, store: RecordStore) -> None:
        """A page for each, in a folder for each month."""
        kept = await store.scan(Where(kinds=(CONVERSATION,)))
        for conversation in kept:
            if not self._is_shown(HISTORY, conversation):
                continue
            turns = await store.scan(Where(kinds=(TURN,), parents=(conversation.id,)))
            if turns:
                month = iso(conversation.at)[:7]
                name = file_name(f"{iso(conversation.at)[:10]} {conversation.id}")
                path = f"{HISTORY}/conversations/{month}/{name}.md"
                self._put(path, render_conversation(conversation, turns))

    def _is_shown(self, place: str, record: Record) -> bool:
        """What was said where it is switched off stays there."""
        return place != HISTORY or self._quiet.switched_off(record.scope) is None

    def _put(self, name: str, text: str) -> None:
        with self.drafts.open(name) as file:
            file.write(text)


async def _projects(library: Library, status: Status | None = None) -> list[Project]:
    """Without what is an account's alone."""
    return [each for each in await library.projects(status) if not is_home(each.name)]


async def _pages(store: RecordStore) -> AsyncIterator[list[Record]]:
    """All that is kept, in the order it came, so that what belongs to something comes after it."""
    kinds = tuple(sorted({*await store.count()} - LEFT_OUT))
    seen: str | None = None
    while kinds:
        page = await store.scan(Where(kinds=kinds), after=seen, limit=PAGE)
        if not page:
            break
        yield page
        seen = page[-1].id
    # What was forgotten of a conversation must not come back, wherever it is taken in.
    graves = await store.scan(Where(kinds=(TURN,), types=(FORGOTTEN,), deleted=True))
    for start in range(0, len(graves), PAGE):
        # When that was is another moment in each place.
        yield [replace(g, deleted_at=g.created_at) for g in graves[start : start + PAGE]]


def _facts_of(project: Project, folders: Sequence[str]) -> str:
    facts = {
        "name": project.name,
        "description": project.description,
        "folders": sorted(folders),
    }
    return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"
