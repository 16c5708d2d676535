"""The database of the surrealdb-memory plugin: its place and its rows.

A folder is copied before it is opened, because SurrealKV writes to every folder that it opens.
"""

import asyncio
import logging
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.app.engines import format_command, load_address_settings
from everkept.core.disk import append, translate_os_errors
from everkept.core.extras import expect_installed
from everkept.errors import EverkeptError, InvalidInput, StoreTooNew
from everkept.settings import (
    PLUGIN_IMPORTED,
    PLUGIN_NOTES_FILE,
    Settings,
    find_plugin_folder,
    find_server_engine,
    is_database_folder,
    keep_surreal_commits,
    list_plugin_notes,
)
from everkept.settings.model import DEFAULT_NAMES
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.surreal.connection import Connection

PLUGIN = "surrealdb-memory"
MEMORIES, ENTITIES, SESSIONS = "memory", "entity", "session"
MEMORY_LINKS, ENTITY_LINKS = "memory_entity", "relates_to"
TABLES = (SESSIONS, ENTITIES, MEMORIES, MEMORY_LINKS, ENTITY_LINKS)

QUERY_SECONDS = 120.0  # a large table takes long, and no tool call waits for it
PLACE_HINT = "Pass the folder in the plugin's `db_path`, or the address of its server, such as ws://127.0.0.1:8000."

Row = Mapping[str, Any]

log = logging.getLogger(__name__)


class PluginPlace(Value):
    """The plugin's database: its folder or the settings of its server, and its names there."""

    shown: str
    namespace: str
    database: str
    folder: Path | None = None
    server: Settings | None = None


def find_plugin_place(
    settings: Settings,
    flags: Mapping[str, Any],
    place: str | None = None,
    *,
    namespace: str | None = None,
    database: str | None = None,
) -> PluginPlace:
    """Return the place that the caller names, otherwise the one of the settings. Raise InvalidInput."""
    own = settings if settings.engine == "surreal" else None
    namespace = namespace or (own.namespace if own else DEFAULT_NAMES["namespace"])
    database = database or (own.database if own else DEFAULT_NAMES["database"])
    if own is not None and own.database_url is not None and place in (None, own.database_url):
        return PluginPlace(own.database_url, namespace, database, server=own)
    if place is not None and find_server_engine(place.partition(":")[0]) == "surreal":
        given = {name: value for name, value in flags.items() if name != "engine"}
        given |= {"namespace": namespace, "database": database}
        server = load_address_settings(place, given, named_by="PATH|URL")
        return PluginPlace(server.database_url or place, namespace, database, server=server)
    folder = find_plugin_folder(settings) if place is None else Path(place).expanduser()
    if folder is None:
        raise InvalidInput(f"Cannot find the data of the {PLUGIN} plugin.", hint=PLACE_HINT, argument="PATH|URL")
    if not is_database_folder(folder):
        problem = "is not the folder of a SurrealDB database" if folder.exists() else "does not exist"
        raise InvalidInput(f"{folder} {problem}.", hint=PLACE_HINT, argument="PATH|URL", value=str(folder))
    return PluginPlace(str(folder.absolute()), namespace, database, folder=folder.absolute())


class PluginDatabase:
    """The plugin's tables. Everything that is read must fit into memory, except the texts of memories."""

    def __init__(self, connection: "Connection", place: PluginPlace) -> None:
        self._connection = connection
        self._place = place
        self.shown = place.shown

    async def list_ids(self) -> dict[str, list[Any]]:
        """Return the ids of all rows by table. Raise InvalidInput if the plugin never wrote to this database."""
        [found] = await self._run("INFO FOR DB")
        present = [table for table in TABLES if table in found["tables"]]
        if MEMORIES not in present:
            raise _build_missing_error(self._place)
        return {table: (await self._run(f"SELECT VALUE id FROM {table}"))[0] for table in present}

    async def list_project_paths(self) -> list[str]:
        """Return the folders of the plugin's sessions. Not every session has one."""
        [info] = await self._run("INFO FOR DB")
        if SESSIONS not in info["tables"]:
            return []
        [found] = await self._run(f"SELECT VALUE project_path FROM {SESSIONS}")
        return sorted({each for each in found if isinstance(each, str)})

    async def list_session_ids(self) -> set[str]:
        """Return the sessions that memories name."""
        [found] = await self._run(f"SELECT VALUE session_id FROM {MEMORIES}")
        return {each for each in found if isinstance(each, str)}

    async def has_memories(self) -> bool:
        [found] = await self._run("INFO FOR DB")
        if not {MEMORIES, MEMORY_LINKS} <= set(found["tables"]):
            return False
        return bool((await self._run(f"SELECT VALUE id FROM {MEMORIES} LIMIT 1"))[0])

    async def read(self, ids: Sequence[Any]) -> list[Row]:
        [rows] = await self._run("SELECT * OMIT embedding FROM $ids", {"ids": list(ids)})
        return rows

    async def _run(self, statements: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        return await self._connection.run(self._place.database, statements, values)


def _build_missing_error(place: PluginPlace) -> InvalidInput:
    return InvalidInput(
        f"{place.shown} has no data of the {PLUGIN} plugin (namespace {place.namespace}, database {place.database}).",
        hint="Pass --namespace and --database if the plugin's settings have other names.",
        argument="PATH|URL",
        value=place.shown,
    )


@asynccontextmanager
async def open_plugin_database(place: PluginPlace) -> AsyncGenerator[PluginDatabase, None]:
    """Open the server, or a private copy of the folder, which is deleted afterwards."""
    expect_installed("surreal", "The data of that plugin")
    keep_surreal_commits()
    from everkept.engines.surreal.drivers import VERSION_2_FOLDER, Credentials, EmbeddedConnection, SocketConnection

    if place.server is not None:
        server = place.server
        login = Credentials(server.database_user or "", server.database_password or "")
        connection = SocketConnection(
            server.database_url or "", place.namespace, login, time_limit=QUERY_SECONDS, ca=server.database_ca
        )
        try:
            if not await connection.has_database(place.database):
                raise _build_missing_error(place)
            yield PluginDatabase(connection, place)
        finally:
            await connection.close()
        return
    folder = place.folder or Path()
    if not (folder / VERSION_2_FOLDER).exists():
        raise StoreTooNew(
            f"{folder} was written by SurrealDB 3, or in another format than SurrealKV.",
            hint=f"Run `surreal start surrealkv://{folder}` (or rocksdb://), then import from ws://127.0.0.1:8000.",
            path=str(folder),
        )
    private = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="everkept-import-"))
    try:
        copy = await asyncio.to_thread(_copy_folder, folder, private / "copy")
        connection = EmbeddedConnection(copy, place.namespace, time_limit=QUERY_SECONDS)
        try:
            yield PluginDatabase(connection, place)
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(shutil.rmtree, private, ignore_errors=True)


def _copy_folder(folder: Path, target: Path) -> Path:
    """Copy a folder that the plugin may be writing to: what comes after the last whole write is dropped when opened."""
    with translate_os_errors(target):
        return Path(shutil.copytree(folder, target, copy_function=shutil.copyfile))


def note_import(settings: Settings, place: str) -> None:
    """Remember that the place was imported, so that nothing announces it again."""
    _add_note(settings, PLUGIN_IMPORTED + place)


def _add_note(settings: Settings, note: str) -> bool:
    """Add a line to the notes. Return False if they have it already."""
    if {note, PLUGIN_IMPORTED + note}.intersection(list_plugin_notes(settings)):
        return False
    append(settings.data_dir / PLUGIN_NOTES_FILE, f"{note}\n")
    return True


SERVER_DELAY_SECONDS = 5.0  # before a server is asked, because the client's first calls come first


async def announce_plugin_data(settings: Settings) -> None:
    """Log once which command imports the plugin's data, if there is any. A failure does not matter."""
    if settings.read_only or settings.deployment_mode == "embedded-memory":
        return
    try:
        if settings.engine != "surreal" or settings.database_url is None:
            folder = find_plugin_folder(settings)
            place = None if folder is None else str(folder)
        else:
            place = settings.database_url
            await asyncio.sleep(SERVER_DELAY_SECONDS)
            async with open_plugin_database(find_plugin_place(settings, {})) as found:
                place = place if await found.has_memories() else None
        if place is not None and _add_note(settings, place):
            command = format_command(["everkept", "import", PLUGIN, place], sys.platform)
            log.warning("memories of the %s plugin found in %s: run `%s` to import them", PLUGIN, place, command)
    except (EverkeptError, OSError, RuntimeError) as error:
        log.info("no data of the %s plugin read: %s", PLUGIN, error)
