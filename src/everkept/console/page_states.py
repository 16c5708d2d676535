"""States of pages: a value that stays equal until the page would look different. Change logs do not cover these."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from everkept.accounts.access_log import LOG_FOLDER
from everkept.app.app import App
from everkept.care.backup_schedule import get_backup_folder
from everkept.care.check_context import CheckContext
from everkept.care.installation_checks import find_clients
from everkept.console.owner import require_owner
from everkept.core.sessions import Session
from everkept.families.bank.banks import URI_SCHEME

PASSING_SUFFIXES = ("-wal", "-shm", ".lock")  # of files that come and go while a database is open


class PageStates:
    """Reads the states of pages that only the owner sees."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._readers: Mapping[str, Callable[[Session], Awaitable[object]]] = {
            "bank": self._read_bank,
            "care": self._read_care,
            "conversations": self._read_conversations,
            "health": self._read_health,
            "team": self._read_team,
        }

    def has_page(self, page: object) -> bool:
        return page in self._readers

    async def read(self, page: str, session: Session) -> str:
        """Return the state of a page. It contains none of the data."""
        require_owner(self._app)
        state = await self._readers[page](session)
        return hashlib.sha256(repr(state).encode()).hexdigest()[:16]

    async def _read_bank(self, session: Session) -> object:
        resources = self._app.resources
        files = [each.uri for each in await resources.list_resources(session) if each.uri.startswith(URI_SCHEME)]
        return [(uri, await resources.read_state(session, uri)) for uri in files]

    async def _read_care(self, _session: Session) -> object:
        return await asyncio.to_thread(lambda: _list_files(get_backup_folder(self._app.settings).glob("*.zip")))

    async def _read_conversations(self, _session: Session) -> object:
        store = await self._app.library.open_history_store()
        return await store.get_revision(), await self._app.history.list_excluded()

    async def _read_health(self, _session: Session) -> object:
        context = CheckContext(self._app.settings, self._app.clock)
        clients = await asyncio.to_thread(find_clients, context)
        files = await asyncio.to_thread(_list_lasting, self._app.settings.data_dir)
        return self._app.guarded.condition.status, clients, files

    async def _read_team(self, _session: Session) -> object:
        accounts, library = self._app.accounts, self._app.library
        calls = (self._app.settings.data_dir / LOG_FOLDER).rglob("*.jsonl")
        return (
            await accounts.list_users(),
            await accounts.list_grants(),
            sorted(await library.list_tokens(), key=attrgetter("id")),
            await asyncio.to_thread(_list_files, calls),
        )


def _list_files(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    with suppress(OSError):  # of a folder that cannot be read
        for each in files:
            with suppress(OSError):  # deleted since it was listed
                seen = each.stat()
                found.append((str(each), seen.st_size, seen.st_mtime_ns))
    return sorted(found)


def _list_lasting(folder: Path) -> list[str]:
    with suppress(OSError):  # it does not exist yet, or cannot be read
        return sorted(each.name for each in folder.iterdir() if not each.name.endswith(PASSING_SUFFIXES))
    return []
