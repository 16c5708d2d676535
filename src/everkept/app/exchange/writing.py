"""Writing everything as lines that git compares well, with pages beside them for people."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from everkept.app.accounts.homes import no_project
from everkept.app.exchange import pages
from everkept.app.exchange.layout import (
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
)
from everkept.app.exchange.lines import line_of
from everkept.app.workspaces import key_of_workspace
from everkept.core.accounts import USERS, account_id, home_of, is_home
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project, Status
from everkept.core.records import Record, Where
from everkept.core.times import iso
from everkept.errors import InvalidInput, ProjectOff
from everkept.families.history.importing.graves import FORGOTTEN
from everkept.families.history.importing.quiet import Quiet
from everkept.families.history.model import CONVERSATION, TURN
from everkept.values import Value, field, replace

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
            self._put(ABOUT, pages.about(projects, self.outcome.accounts))
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
            for name, text in (await pages.of_store(store, title)).items():
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
                self._put(path, pages.conversation(conversation, turns))

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
