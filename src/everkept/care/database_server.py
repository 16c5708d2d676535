"""Database server: whether it answers, and the pending writes on this machine."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.engines import StandbyFolder, build_empty_library, find_standby, find_stranded_writes, make_library
from everkept.app.server_faults import describe_tables, find_server_faults
from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.core.library import Condition
from everkept.core.projects import is_trash_name
from everkept.core.records import Batch, Insert, Record, Update
from everkept.core.sessions import is_private_name, parse_private_name
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_iso
from everkept.errors import EverkeptError, NotFound, Refused, StoreBusy
from everkept.settings import Settings, get_title
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.engines.standby.journal import Journal, JournalEntry, RejectedWrite
    from everkept.engines.standby.journal_acts import Act

MAX_SHOWN_CHARACTERS = 200  # of the text of a write
PAGE_ENTRIES = 500  # entries per read


class JournalWrite(Value):
    """One pending write. With a `reason`, the write was rejected.

    `store` is the name of a project, or `user` or `history`; `at` is the time of the write. The content of an
    `account`'s write is hidden, because it may be private.
    """

    number: int
    what: str
    store: str | None = None
    at: str | None = None
    account: str | None = None
    content: str | None = None
    reason: str | None = None
    set_aside_at: str | None = None


async def list_journal_writes(settings: Settings) -> list[JournalWrite]:
    """Return the rejected writes first, then the pending ones in order."""
    standby = _require_standby(settings)
    async with _open_journal(standby) as journal:
        if journal is None:
            return []
        names = await _read_store_names(standby)
        aside = [
            replace(_describe_write(names, each), reason=each.reason, set_aside_at=format_iso(each.at))
            for each in await journal.list_rejected()
        ]
        return aside + [_describe_write(names, each) async for each in _read_pending(journal)]


async def retry_write(settings: Settings, number: int) -> int:
    """Make a rejected write pending again, after the others. Return its new number. Raise NotFound."""
    async with _open_journal(_require_standby(settings)) as journal:
        if journal is None:
            raise _build_missing_error(number)
        return await journal.retry_rejected(number)


async def retry_all_writes(settings: Settings) -> Mapping[int, int]:
    """Make all rejected writes pending again, in order. Map each number to the new one."""
    async with _open_journal(_require_standby(settings)) as journal:
        return {} if journal is None else await journal.retry_all_rejected()


async def discard_write(settings: Settings, number: int) -> None:
    """Discard a write permanently. Raise NotFound."""
    async with _open_journal(_require_standby(settings)) as journal:
        if journal is None:
            raise _build_missing_error(number)
        await journal.discard_rejected(number)


def _require_standby(settings: Settings) -> StandbyFolder:
    standby = find_standby(settings)
    if standby is None:
        raise Refused(
            "This engine is never unreachable, so no writes are pending.",
            hint="Only database servers have a journal. See --database-url.",
        )
    return standby


@asynccontextmanager
async def _open_journal(standby: StandbyFolder) -> "AsyncGenerator[Journal | None, None]":
    """Return None if no write was ever pending."""
    if not standby.journal.exists():
        yield None
        return
    from everkept.engines.standby.journal import Journal

    journal = Journal(standby.journal)
    try:
        yield journal
    finally:
        await journal.close()


async def _read_pending(journal: "Journal") -> "AsyncIterator[JournalEntry]":
    last = 0
    while page := await journal.list_pending(after=last, limit=PAGE_ENTRIES):
        for entry in page:
            yield entry
        last = page[-1].seq


async def _read_store_names(standby: StandbyFolder) -> Mapping[str, str]:
    """Return the names of stores with a replica. Create nothing."""
    from everkept.engines.sqlite.library import SqliteLibrary
    from everkept.engines.standby.journal_acts import format_store_name

    if not standby.replica.is_dir():
        return {}
    replica = SqliteLibrary(standby.replica)
    try:
        return {format_store_name(project.id): project.name for project in await replica.list_projects()}
    except EverkeptError:  # names are optional, so show the writes anyway
        return {}
    finally:
        await replica.close()


def _describe_write(names: Mapping[str, str], entry: "JournalEntry | RejectedWrite") -> JournalWrite:
    from everkept.engines.standby.journal_acts import Commit

    act, account = entry.act, entry.account
    if not isinstance(act, Commit):
        return JournalWrite(entry.seq, _describe_act(act), account=account)
    store = names.get(act.store, act.store)
    if home := parse_private_name(store):
        account = account or home.user
    shown = "" if account else clip_text(" ".join(_get_text(act.batch).split()), MAX_SHOWN_CHARACTERS)
    return JournalWrite(
        entry.seq, _describe_act(act), _format_store(store), format_iso(act.batch.at), account, shown or None
    )


def _format_store(project: str) -> str:
    """Return a name for people. Private stores of accounts have internal names."""
    home = parse_private_name(project)
    return project if home is None else f"the {home.home} scope of {home.user}"


def _get_text(batch: Batch) -> str:
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


def _describe_act(act: "Act") -> str:
    from everkept.engines.standby import journal_acts

    match act:
        case journal_acts.Commit(batch=batch):
            return f"{batch.tool}: {format_count(len(batch.steps), 'step')}"
        case journal_acts.CreateProject(project):
            kind = "" if is_private_name(project.name) else "project "
            return f"create {kind}{_format_store(project.name)}"
        case journal_acts.ArchiveProject(name=name):
            return f"archive project {name}"
        case journal_acts.RestoreProject(name=name):
            return f"restore project {name}"
        case journal_acts.SwitchProject(name=name, off=off):
            return f"switch project {name} {'off' if off else 'on'}"
        case journal_acts.AssignWorkspace(path=path):
            return f"assign folder {path}"
        case journal_acts.MoveWorkspace(path=path, project_id=project_id):
            return f"{'assign' if project_id else 'release'} folder {path}"
        case journal_acts.SetNote(key=key):
            return f"set note {key}"
        case journal_acts.AddToken(token):
            return f"add token {token.label}"
        case journal_acts.RemoveToken(token_id):
            return f"remove token {token_id}"
        case journal_acts.DamagedAct(reason):
            return f"damaged write ({clip_text(reason)})"


def _build_missing_error(number: int) -> NotFound:
    return NotFound(
        "write",
        str(number),
        message=f"Rejected write {number} not found.",
        hint="List the writes with `everkept journal`.",
    )


DATABASE_CHECK = "database"
JOURNAL_COMMAND = "everkept journal"
CHANGED_COMMAND = "find out who changed the database; restore a backup of it, or drop what was added"
UNCHECKED = "A changed letter in a stored text may not be seen."
_KEPT_REPLICAS = "replica.before-*Z*"
_DAMAGED_JOURNALS = "journal.damaged-*.db"  # name of a damaged journal that was moved


def check_database(context: CheckContext) -> Iterator[DoctorFinding]:
    for left in asyncio.run(find_stranded_writes(context.settings)):
        yield DoctorFinding(DATABASE_CHECK, "advice", left.sentence, left.hint)
    if context.settings.engine == "sqlite":
        return
    answer = _check_answer(context)
    yield answer
    if answer.severity == "ok" and not build_empty_library(context.settings):
        yield from _check_content(context)
    if standby := find_standby(context.settings):
        yield from _check_journal(standby)


def list_kept_copies(standby: StandbyFolder) -> list[Path]:
    """Find data that a database has lost, which stays here until a person deletes it."""
    return sorted(standby.folder.glob(_KEPT_REPLICAS))


def _check_answer(context: CheckContext) -> DoctorFinding:
    try:
        if build_empty_library(context.settings):  # a check creates nothing
            return DoctorFinding(DATABASE_CHECK, "ok", "Nothing is stored yet.")
        condition, projects = asyncio.run(_read_condition(context))
    except StoreBusy as error:  # normal while a server runs
        return DoctorFinding(DATABASE_CHECK, "advice", error.message, error.hint)
    except EverkeptError as error:
        is_new = error.facts.get("others") == []  # nothing exists yet that could be selected
        return DoctorFinding(DATABASE_CHECK, "advice" if is_new else "problem", error.message, error.hint)
    where = f" at {condition.place}" if condition.place else ""
    version = f" {condition.version}" if condition.version else ""
    title = get_title(condition.engine)
    what = f"{title}{version}{where} answers, with {format_count(projects, 'project')}."
    return DoctorFinding(DATABASE_CHECK, "ok", what)


def _check_content(context: CheckContext) -> Iterator[DoctorFinding]:
    """Compare the tables with ours, and check the data."""
    found = asyncio.run(find_server_faults(context.settings, context.clock, full=context.full))
    if broken := [fault for fault in found.tables if fault.problem != "open"]:
        yield DoctorFinding(DATABASE_CHECK, "problem", describe_tables(context.settings, broken), CHANGED_COMMAND)
    for fault in found.tables:
        if fault.problem == "open":
            what = f'Every user of the database can create functions in the schema "{fault.name}", where queries look.'
            command = f'REVOKE CREATE ON SCHEMA "{fault.name}" FROM PUBLIC'
            yield DoctorFinding(DATABASE_CHECK, "advice", what, command)
    for what in found.stores:
        yield DoctorFinding(DATABASE_CHECK, "problem", what, CHANGED_COMMAND)
    if not broken and not found.stores:
        depth = f"in full. {UNCHECKED}" if context.full else "quickly. To read all data, pass --full."
        what = f"Checked the tables and {format_count(found.count, 'store')} {depth}"
        yield DoctorFinding(DATABASE_CHECK, "ok", what)


async def _read_condition(context: CheckContext) -> tuple[Condition, int]:
    library = make_library(context.settings, context.clock, standing_by=False, founds=False)
    try:
        names = [project.name for project in await library.list_projects()]
        return library.condition, sum(not is_private_name(name) and not is_trash_name(name) for name in names)
    finally:
        await library.close()


def _check_journal(standby: StandbyFolder) -> Iterator[DoctorFinding]:
    waiting, aside = asyncio.run(standby.count_writes())
    if waiting:
        what = f"{format_count(waiting, 'pending write')} on this machine. A server sends them when it can."
        yield DoctorFinding(DATABASE_CHECK, "advice", what, JOURNAL_COMMAND)
    if aside:
        what = f"{format_count(aside, 'write')} rejected by the database and not stored."
        yield DoctorFinding(DATABASE_CHECK, "problem", what, JOURNAL_COMMAND)
    for path in list_kept_copies(standby):
        what = f"The database has lost data. The earlier data is in {path}."
        yield DoctorFinding(DATABASE_CHECK, "problem", what, f"everkept migrate --from sqlite:{path} --to PLACE")
    for path in sorted(standby.folder.glob(_DAMAGED_JOURNALS)):
        what = f"A journal was damaged and moved to {path}. Its pending writes were not sent."
        yield DoctorFinding(DATABASE_CHECK, "problem", what, "delete the file when you no longer need it")
