"""The library that the settings describe: its address, its engine, and its replica."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import join, quote
from subprocess import list2cmdline
from typing import Any

from everkept.core.disk import make_folder, replace
from everkept.core.extras import expect_installed
from everkept.core.library import Condition, ForwardingLibrary
from everkept.core.ports import Library
from everkept.core.times import Clock, read_clock
from everkept.errors import InvalidInput, Refused
from everkept.settings import (
    REPLICA,
    Settings,
    find_server_engine,
    get_standby_folder,
    get_surreal_folder,
    hide_in_address,
    is_on_server,
    keep_surreal_commits,
    read_settings,
)
from everkept.settings.model import DEFAULT_NAMES
from everkept.values import Value

ADDRESS_HINT = (
    "Use sqlite:FOLDER, surreal:FOLDER, or the URL of a server, such as "
    "ws://127.0.0.1:8000 (SurrealDB) or postgresql://127.0.0.1:5432/everkept."
)
_FOLDER_ENGINES = ("sqlite", "surreal")
_FLAG = "--database-url"


def load_address_settings(
    address: str, flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, named_by: str = "--to"
) -> Settings:
    """Return the settings with another database address. Errors name the option `named_by`."""
    address = address.strip()
    kind, _, rest = address.partition(":")
    if engine := find_server_engine(kind):
        place = {"engine": engine, "database_url": address}
        try:
            return read_settings({**flags, **place}, environment)
        except (InvalidInput, Refused) as error:
            raise _with_flag(error, named_by) from None
    if kind in _FOLDER_ENGINES and rest.strip():
        place = {
            "engine": kind,
            "deployment_mode": "embedded-file",
            "data_dir": Path(rest).expanduser(),
            "database_url": None,
        }
        return read_settings({**flags, **place}, environment)
    shown = hide_in_address(address)  # a mistyped one may contain a password
    raise InvalidInput(f"{shown!r} is not a supported location.", hint=ADDRESS_HINT, argument=named_by, value=shown)


def _with_flag(error: InvalidInput | Refused, flag: str) -> InvalidInput | Refused:
    """Replace the general option in an error with the one that the caller used."""
    if error.facts.get("argument") != _FLAG:
        return error
    message = error.message.replace(f"`{_FLAG}`", f"`{flag}`", 1)
    return type(error)(message, hint=error.hint, **{**error.facts, "argument": flag})


def format_place(settings: Settings) -> str:
    """Return the address of the database that the settings name."""
    if settings.engine == "postgres":
        return f"{settings.database_url} ({settings.namespace})"
    if is_on_server(settings):
        return f"{settings.database_url} ({settings.namespace}/{settings.database})"
    if settings.deployment_mode == "embedded-memory":
        return "memory"
    return f"{settings.engine}:{settings.data_dir}"


def parse_address(name: str) -> str:
    """Return the part of the name that a command accepts."""
    kind = name.partition(":")[0]
    return name.partition(" (")[0] if find_server_engine(kind) else name


class DeferredLibrary(ForwardingLibrary):
    """A library that `make` creates at the first call. Until then its condition is `condition`."""

    def __init__(self, make: Callable[[], Library], condition: Condition) -> None:
        self._make = make
        self._condition = condition
        self._made: Library | None = None

    @property
    def condition(self) -> Condition:
        return self._condition if self._made is None else self._made.condition

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def _reach_library(self) -> Library:
        if self._made is None:
            self._made = self._make()
        return self._made


# Notes in an unfinished copy: its source, and the ids already copied.
MIGRATION_ORIGIN_NOTE = "migration.from"
MIGRATION_COPIED_NOTE = "migration.brought"


class FinishedLibrary(ForwardingLibrary):
    """A library that refuses every call while it is an unfinished copy.

    The first call checks this, and then runs `on_first`.
    """

    def __init__(self, library: Library, name: str, on_first: Callable[[], Awaitable[None]]) -> None:
        self._library = library
        self._name = name
        self._on_first = on_first

    @property
    def condition(self) -> Condition:
        return self._library.condition

    async def close(self) -> None:
        await self._library.close()

    async def _reach_library(self) -> Library:
        if origin := await self._library.get_note(MIGRATION_ORIGIN_NOTE):
            command = f"everkept migrate --from {_quote_address(origin)} --to {_quote_address(self._name)}"
            raise Refused(
                f"{self._name} contains an unfinished copy of {origin}.", hint=f"To finish it, run `{command}`."
            )
        await self._on_first()
        self._reached = self._library
        return self._library


def _quote_address(name: str) -> str:
    return quote(parse_address(name))


class PendingChange(Value):
    """A change that the database has not received. The database will give it another number."""

    project_id: str | None  # None: it belongs to no project
    seq: int
    at: int
    tool: str


ReadPendingChanges = Callable[[], Awaitable[Sequence[PendingChange]]]


async def read_no_changes() -> Sequence[PendingChange]:
    """Return no pending changes, for a database that is always reachable."""
    return ()


JOURNAL_FILE = "journal.db"
ADDRESS_FILE = "address"  # file that names the database a folder belongs to
WRITE_WAIT_SECONDS = 2.0  # how long a write waits for a database that has just become unreachable
_CMD_CHARACTERS = frozenset("&|<>^()%!,;=")  # characters that cmd.exe interprets outside quotation marks
WRITE_LOCK_SECONDS = 5.0  # how long one program waits for others to write to the same server


def make_library(
    settings: Settings,
    clock: Clock,
    *,
    standing_by: bool = True,
    patience: float = WRITE_WAIT_SECONDS,
    on_return: Callable[[], None] = lambda: None,
    founds: bool = True,
) -> Library:
    """Build the library without touching a file or a server before the first call.

    Without `standing_by`, it is the database itself: an unreachable one is an error, and an unfinished copy is
    accepted. Without `founds`, a missing PostgreSQL schema is an error, for callers that only read. `patience` is how
    long a write waits for an unreachable database. `on_return` is called when it is reachable again.
    """
    waiting = FailoverOptions(patience, on_return) if standing_by else None
    library = _build_library(settings, clock, waiting, founds=founds)
    if not standing_by or settings.deployment_mode == "embedded-memory":
        return library
    standby = find_standby(settings)

    async def on_first() -> None:
        if standby is not None:
            standby.label(format_place(settings), settings.database_user or "")

    return FinishedLibrary(library, format_place(settings), on_first)


def _build_library(settings: Settings, clock: Clock, waiting: "FailoverOptions | None", *, founds: bool) -> Library:
    if settings.engine == "surreal":
        return _build_surreal(settings, clock, waiting)
    if settings.engine == "postgres":
        served = _build_postgres(settings, clock, founds=founds)
        return served if waiting is None else _add_standby(settings, clock, served, waiting)
    if settings.deployment_mode == "embedded-memory":
        from everkept.engines.memory.library import MemoryLibrary

        return MemoryLibrary(clock)
    from everkept.engines.sqlite.library import SqliteLibrary

    return SqliteLibrary(
        settings.data_dir, clock=clock, synchronous=settings.synchronous, inline_writes=settings.transport == "stdio"
    )


class FailoverOptions(Value):
    """Behavior of calls while a database is unreachable."""

    patience: float
    on_return: Callable[[], None]

    def handle_condition(self, condition: Condition) -> None:
        if condition.status == "connected":
            self.on_return()


class StandbyFolder(Value):
    """The folder with the local copy of a database and the journal of pending writes."""

    folder: Path

    @property
    def replica(self) -> Path:
        return self.folder / REPLICA

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL_FILE

    @property
    def address(self) -> str:
        """The address of the database, if it was recorded."""
        return self._label[0]

    @property
    def user(self) -> str:
        """The user name on the database, if it was recorded."""
        return self._label[1]

    @property
    def _label(self) -> tuple[str, str]:
        try:
            lines = (self.folder / ADDRESS_FILE).read_text(encoding="utf-8").strip().splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        address, user = (*lines, "", "")[:2]
        return address, user

    def label(self, address: str, user: str) -> None:
        """Record the database's address and user in the folder."""
        if self._label == (address, user):
            return
        with suppress(OSError):  # only informative, so a failure does not matter
            make_folder(self.folder)
            replace(self.folder / ADDRESS_FILE, f"{address}\n{user}".rstrip().encode() + b"\n")

    async def count_writes(self) -> tuple[int, int]:
        """Count pending and rejected writes without creating a file."""
        if not self.journal.exists():
            return 0, 0
        from everkept.engines.standby.journal import Journal

        journal = Journal(self.journal)
        try:
            return journal.count_writes()
        finally:
            await journal.close()

    async def read_pending_changes(self) -> Sequence[PendingChange]:
        """Read the pending commits, with their numbers in the local copy."""
        if not self.journal.exists():
            return []
        from everkept.engines.standby.journal import Journal
        from everkept.engines.standby.journal_acts import Commit, parse_project_id

        journal, found = Journal(self.journal), list[PendingChange]()
        try:
            last = 0
            while page := await journal.list_pending(after=last):
                found += [
                    PendingChange(parse_project_id(act.store), entry.local_seq, act.batch.at, act.batch.tool)
                    for entry in page
                    if isinstance(act := entry.act, Commit) and entry.local_seq is not None
                ]
                last = page[-1].seq
        finally:
            await journal.close()
        return found


class StrandedWrites(Value):
    """Pending writes for another database than the one in use."""

    address: str
    folder: str
    waiting: int
    set_aside: int
    user: str = ""

    @property
    def sentence(self) -> str:
        parts = [f"{self.waiting:,} pending"] * bool(self.waiting)
        parts += [f"{self.set_aside:,} rejected"] * bool(self.set_aside)
        place = self.address or "another database"
        return f"Writes for {place} are still on this machine: {', '.join(parts)} ({self.folder})."

    @property
    def hint(self) -> str:
        """The commands that send and show the writes, complete except for the password."""
        url = parse_address(self.address) if self.address else "ADDRESS"
        flags = ["--data-dir", str(Path(self.folder).parent.parent), "--database-url", url]
        flags += ["--database-user", self.user] if self.user else []
        variables = _list_variables(self.address, has_user=bool(self.user))
        said = f"With {' and '.join(variables)} set, " if variables else ""
        where = format_command(flags, sys.platform)
        return f"{said}`everkept status {where}` sends the pending writes, and `everkept journal {where}` lists them"


def format_command(words: Sequence[str], platform: str) -> str:
    """Quote the words for the shell of the platform: on Windows, cmd.exe."""
    if platform != "win32":
        return join(words)
    plain = [list2cmdline([word]) for word in words]
    return " ".join(
        f'"{word}"' if word == said and _CMD_CHARACTERS.intersection(word) else said
        for word, said in zip(words, plain, strict=True)
    )


def _list_variables(name: str, *, has_user: bool) -> list[str]:
    """List the environment variables that a place with that name needs."""
    inside = name.partition(" (")[2].removesuffix(")").split("/")
    named = zip(DEFAULT_NAMES.items(), inside, strict=False)
    said = [f"EVERKEPT_{key.upper()}={value}" for (key, usual), value in named if value != usual]
    return [*said, *(["EVERKEPT_DATABASE_PASSWORD"] if has_user else [])]


async def find_stranded_writes(settings: Settings) -> list[StrandedWrites]:
    """Find pending writes for databases that are no longer in use."""
    own, found = get_standby_folder(settings), list[StrandedWrites]()
    for journal in sorted(own.parent.glob(f"*/{JOURNAL_FILE}")):
        standby = StandbyFolder(journal.parent)
        if standby.folder == own and is_on_server(settings):
            continue
        waiting, aside = await standby.count_writes()
        if waiting or aside:
            found.append(StrandedWrites(standby.address, str(standby.folder), waiting, aside, standby.user))
    return found


def find_standby(settings: Settings) -> StandbyFolder | None:
    """Return the standby folder, or None for an engine that is always reachable."""
    return StandbyFolder(get_standby_folder(settings)) if is_on_server(settings) else None


def _build_postgres(settings: Settings, clock: Clock, *, founds: bool) -> Library:
    expect_installed("postgres", "The engine postgres", engine="postgres")
    place = settings.database_url or ""

    def make() -> Library:
        from everkept.engines.postgres.connection import Credentials
        from everkept.engines.postgres.library import PostgresLibrary, open_database

        opened = open_database(
            place,
            settings.namespace,
            credentials=Credentials(settings.database_user or "", settings.database_password or ""),
            ca=settings.database_ca,
            time_limit=settings.database_timeout,
            founds=founds,
        )
        return PostgresLibrary(opened, mode=settings.deployment_mode, place=place, clock=clock)

    return DeferredLibrary(make, Condition("postgres", settings.deployment_mode, place=place))


def _build_surreal(settings: Settings, clock: Clock, waiting: "FailoverOptions | None") -> Library:
    expect_installed("surreal", "The engine surreal", engine="surreal")
    keep_surreal_commits()
    from everkept.engines.surreal.library import SurrealLibrary

    if not is_on_server(settings):
        from everkept.engines.surreal.drivers import EmbeddedConnection

        in_memory = settings.deployment_mode == "embedded-memory"
        folder = None if in_memory else get_surreal_folder(settings)
        return SurrealLibrary(
            EmbeddedConnection(folder, settings.namespace, time_limit=settings.database_timeout),
            database=settings.database,
            mode=settings.deployment_mode,
            place=str(folder or ""),
            clock=clock,
        )
    served = _build_surreal_server(settings, clock)
    return served if waiting is None else _add_standby(settings, clock, served, waiting)


def _add_standby(settings: Settings, clock: Clock, primary: Library, waiting: "FailoverOptions") -> Library:
    """Wrap a database that can become unreachable with its replica and journal."""
    from everkept.accounts.grants import read_rights
    from everkept.engines.sqlite.library import SqliteLibrary
    from everkept.engines.standby.journal import Journal
    from everkept.engines.standby.library import StandbyLibrary

    standby = StandbyFolder(get_standby_folder(settings))
    replica = SqliteLibrary(standby.replica, clock=clock, synchronous=settings.synchronous)
    return StandbyLibrary(
        primary,
        replica,
        Journal(standby.journal),
        clock=clock,
        patience=waiting.patience,
        on_change=waiting.handle_condition,
        rights_of=read_rights,
    )


def _build_surreal_server(settings: Settings, clock: Clock) -> Library:
    from everkept.core.locks import WaitingLock
    from everkept.engines.surreal.drivers import Credentials, SocketConnection
    from everkept.engines.surreal.library import SurrealLibrary

    address = settings.database_url or ""
    folder = get_standby_folder(settings)
    connection = SocketConnection(
        address,
        settings.namespace,
        Credentials(settings.database_user or "", settings.database_password or ""),
        time_limit=settings.database_timeout,
        ca=settings.database_ca,
        turns=WaitingLock(folder / "server.lock", "A write", WRITE_LOCK_SECONDS).hold_async,
    )
    return SurrealLibrary(
        connection, database=settings.database, mode=settings.deployment_mode, place=address, clock=clock
    )


def build_empty_library(settings: Settings) -> Library | None:
    """Build a library without files. Return None if data exists, or if this engine uses no files here."""
    if settings.deployment_mode != "embedded-file" or _has_files(settings):
        return None
    from everkept.engines.memory.library import MemoryLibrary

    # Report the engine's own condition without asking it.
    return MemoryLibrary(condition=make_library(settings, read_clock).condition)


def _has_files(settings: Settings) -> bool:
    if settings.engine == "surreal":
        folder = get_surreal_folder(settings)
        return folder.is_dir() and any(folder.iterdir())
    places = (settings.data_dir / part for part in (".", "projects", "archive"))
    return any(any(place.glob("*.db")) for place in places)
