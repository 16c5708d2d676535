"""A database server: whether it answers, and the writes that wait for it on this machine."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.engines import Standby, empty_library, left_elsewhere, make_library, standby_of
from everkept.care.findings import Finding, Patient
from everkept.core.library import Condition
from everkept.core.records import Batch, Insert, Record, Update
from everkept.core.sessions import home_of, is_home
from everkept.core.text import clipped, counted
from everkept.core.times import iso
from everkept.errors import EverkeptError, NotFound, Refused, StoreBusy
from everkept.settings import Settings, title_of
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.engines.standby.journal import Aside, Entry, Journal
    from everkept.engines.standby.journal_acts import Act

LONGEST_SHOWN = 200  # characters of what would be stored
PAGE = 500  # entries that are read at once


class Waiting(Value):
    """One write that waits. Where it has a `reason`, it is set aside: nothing becomes of it.

    `store` is the name of a project, or `user` or `history`; `at` is when it was written. Of what
    an `account` wrote the content is not shown: it may be the account's alone.
    """

    number: int
    what: str
    store: str | None = None
    at: str | None = None
    account: str | None = None
    content: str | None = None
    reason: str | None = None
    set_aside_at: str | None = None


async def waiting(settings: Settings) -> list[Waiting]:
    """Those that are set aside first, then the others in their order."""
    standby = _standby(settings)
    async with _journal(standby) as journal:
        if journal is None:
            return []
        names = await _names(standby)
        aside = [
            replace(_told(names, each), reason=each.reason, set_aside_at=iso(each.at))
            for each in await journal.aside()
        ]
        return aside + [_told(names, each) async for each in _pending(journal)]


async def retry(settings: Settings, number: int) -> int:
    """Lets it wait again, behind the others; gives its new number. Raises NotFound."""
    async with _journal(_standby(settings)) as journal:
        if journal is None:
            raise _no_such(number)
        return await journal.retry_aside(number)


async def retry_all(settings: Settings) -> Mapping[int, int]:
    """Lets all that are set aside wait again, in their order; gives by each number the new one."""
    async with _journal(_standby(settings)) as journal:
        return {} if journal is None else await journal.retry_all()


async def discard(settings: Settings, number: int) -> None:
    """Gives it up for good. Raises NotFound."""
    async with _journal(_standby(settings)) as journal:
        if journal is None:
            raise _no_such(number)
        await journal.discard_aside(number)


def _standby(settings: Settings) -> Standby:
    standby = standby_of(settings)
    if standby is None:
        raise Refused(
            "What everything is kept in here cannot be away, so nothing waits.",
            hint="There is a journal where the database is a server: see --database-url.",
        )
    return standby


@asynccontextmanager
async def _journal(standby: Standby) -> "AsyncGenerator[Journal | None, None]":
    """None where nothing ever waited."""
    if not standby.journal.exists():
        yield None
        return
    from everkept.engines.standby.journal import Journal

    journal = Journal(standby.journal)
    try:
        yield journal
    finally:
        await journal.close()


async def _pending(journal: "Journal") -> "AsyncIterator[Entry]":
    last = 0
    while page := await journal.pending(after=last, limit=PAGE):
        for entry in page:
            yield entry
        last = page[-1].seq


async def _names(standby: Standby) -> Mapping[str, str]:
    """What stores are called that have a copy here; nothing is made for it."""
    from everkept.engines.sqlite.library import SqliteLibrary
    from everkept.engines.standby.journal_acts import store_of

    if not standby.replica.is_dir():
        return {}
    replica = SqliteLibrary(standby.replica)
    try:
        return {store_of(project.id): project.name for project in await replica.projects()}
    except EverkeptError:  # names are a help, and no reason to hide what waits
        return {}
    finally:
        await replica.close()


def _told(names: Mapping[str, str], entry: "Entry | Aside") -> Waiting:
    from everkept.engines.standby.journal_acts import Commit

    act, account = entry.act, entry.account
    if not isinstance(act, Commit):
        return Waiting(entry.seq, _deed(act), account=account)
    store = names.get(act.store, act.store)
    if home := home_of(store):
        account = account or home.user
    shown = "" if account else clipped(" ".join(_text_of(act.batch).split()), LONGEST_SHOWN)
    return Waiting(entry.seq, _deed(act), _called(store), iso(act.batch.at), account, shown or None)


def _called(project: str) -> str:
    """What is an account's alone has a name that nobody but we know."""
    home = home_of(project)
    return project if home is None else f"the {home.home} scope of {home.user}"


def _text_of(batch: Batch) -> str:
    texts: list[str] = []
    for step in batch.steps:
        match step:
            case Insert(Record() as record):
                texts.append(record.text or record.name or "")
            case Update(values=values):
                texts.append(str(values.get("text") or ""))
            case _:
                pass
    return "; ".join(filter(None, texts))


def _deed(act: "Act") -> str:
    from everkept.engines.standby import journal_acts

    match act:
        case journal_acts.Commit(batch=batch):
            return f"{batch.tool}: {counted(len(batch.steps), 'step')}"
        case journal_acts.CreateProject(project):
            return f"create {'' if is_home(project.name) else 'project '}{_called(project.name)}"
        case journal_acts.ArchiveProject(name=name):
            return f"archive project {name}"
        case journal_acts.RestoreProject(name=name):
            return f"restore project {name}"
        case journal_acts.SwitchProject(name=name, off=off):
            return f"switch project {name} {'off' if off else 'on'}"
        case journal_acts.AssignWorkspace(path=path):
            return f"assign folder {path}"
        case journal_acts.SetNote(key=key):
            return f"set note {key}"
        case journal_acts.AddToken(token):
            return f"add token {token.label}"
        case journal_acts.RemoveToken(token_id):
            return f"remove token {token_id}"


def _no_such(number: int) -> NotFound:
    return NotFound(
        "write", str(number), message=f"No write with the number {number} is set aside."
    )


CHECK = "database"
JOURNAL = "everkept journal"
_BEFORE = "replica.before-*Z*"
_DAMAGED = "journal.damaged-*.db"  # what a journal is called that was moved away


def check_database(patient: Patient) -> Iterator[Finding]:
    for left in asyncio.run(left_elsewhere(patient.settings)):
        yield Finding(CHECK, "advice", left.sentence, left.hint)
    if patient.settings.engine == "sqlite":
        return
    yield _answering(patient)
    if standby := standby_of(patient.settings):
        yield from _waiting(standby)


def copies_kept(standby: Standby) -> list[Path]:
    """What a database had that came back with less, until somebody removes it."""
    return sorted(standby.folder.glob(_BEFORE))


def _answering(patient: Patient) -> Finding:
    try:
        if empty_library(patient.settings):  # a look makes nothing
            return Finding(CHECK, "ok", "Nothing is stored yet.")
        condition, projects = asyncio.run(_asked(patient))
    except StoreBusy as error:  # as it is while a server runs
        return Finding(CHECK, "advice", error.message, error.hint)
    except EverkeptError as error:
        is_new = error.facts.get("others") == []  # there is nothing yet that could be meant
        return Finding(CHECK, "advice" if is_new else "problem", error.message, error.hint)
    where = f" at {condition.place}" if condition.place else ""
    version = f" {condition.version}" if condition.version else ""
    title = title_of(condition.engine)
    what = f"{title}{version}{where} answers, with {counted(projects, 'project')}."
    return Finding(CHECK, "ok", what)


async def _asked(patient: Patient) -> tuple[Condition, int]:
    library = make_library(patient.settings, patient.clock, standing_by=False, founds=False)
    try:
        projects = [each for each in await library.projects() if not is_home(each.name)]
        return library.condition, len(projects)
    finally:
        await library.close()


def _waiting(standby: Standby) -> Iterator[Finding]:
    waiting, aside = asyncio.run(standby.counts())
    if waiting:
        verb = "waits" if waiting == 1 else "wait"
        what = f"{counted(waiting, 'write')} {verb} on this machine for a server to bring over."
        yield Finding(CHECK, "advice", what, JOURNAL)
    if aside:
        verb = "was" if aside == 1 else "were"
        what = f"{counted(aside, 'write')} could not be made there, and {verb} set aside."
        yield Finding(CHECK, "problem", what, JOURNAL)
    for path in copies_kept(standby):
        what = f"The database came back with less than it had; what it had is in {path}."
        yield Finding(CHECK, "problem", what, f"everkept migrate --from sqlite:{path} --to PLACE")
    for path in sorted(standby.folder.glob(_DAMAGED)):
        what = f"A journal was damaged and moved to {path}: what waited in it was not written."
        yield Finding(CHECK, "problem", what, "remove the file once you need it no more")
