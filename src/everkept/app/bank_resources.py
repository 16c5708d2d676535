"""The files of the active memory bank as documents: memory-bank://progress.md and the like."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping

from everkept.app.resources import Document, ResourceInfo
from everkept.core.sessions import Call, Session
from everkept.core.times import Clock
from everkept.errors import (
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    Refused,
    Unavailable,
)
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.files.bank_files import found_name
from everkept.families.bank.files.names import matching
from everkept.families.bank.files.texts import Stamp, as_shown, searched_files, stamp_of
from everkept.families.bank.files.uris import GRAPH_VIEW, SCHEME, path_in, uri_of
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    TODAYS_NAMES,
)
from everkept.values import Value, field, replace

MARKDOWN = "text/markdown"
MOST_LISTED = 100  # documents; others can be read as well
MOST_READ = 16 * 1024 * 1024  # bytes of one document: it goes out in one message
REMOTE_INTERVAL = 2_000_000  # microseconds between two looks at another machine
DESCRIPTIONS = {
    PRODUCT: "Product and project information",
    ACTIVE: "Current project state",
    PROGRESS: "Progress history",
    DECISIONS: "Decision history",
    PATTERNS: "System architecture patterns",
}

log = logging.getLogger(__name__)


class _Look(Value):
    """What a bank on another machine had when it was last asked, or why it gave no answer."""

    at: int
    address: str = ""
    files: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    fault: Unavailable | None = None


class BankResources:
    """The documents of the bank that the session has chosen."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def listed(self, session: Session) -> list[ResourceInfo]:
        """Core files first; a bank that is out of reach must not hide other documents."""
        try:
            bank = await self._bank(session)
            files = await searched_files(bank)
            graph = await bank.files.info(GRAPH_VIEW)
        except NotFound:
            return []
        except EverkeptError as error:
            log.warning("the memory bank's documents are not listed: %s", error)
            return []
        names = {TODAYS_NAMES.get(info.path, info.path): info for info in files}
        infos = [_info(name) for name in names][:MOST_LISTED]
        return [*infos, *([_info(GRAPH_VIEW)] if graph else [])]

    def templates(self) -> list[ResourceInfo]:
        return [
            ResourceInfo(
                SCHEME + "{name}", "memory-bank-file", "A file of the memory bank.", MARKDOWN
            )
        ]

    def has(self, uri: str) -> bool:
        return uri.startswith(SCHEME)

    async def read(self, session: Session, uri: str) -> Document:
        path = path_in(uri)
        bank = await self._bank(session)
        found = path if path == GRAPH_VIEW else await found_name(bank, path)
        try:
            info = await bank.files.info(found) if found else None
            if info is None or info.is_folder:
                raise FileNotFound(path)
            if info.size > MOST_READ:
                raise Refused(
                    f"{path} has {info.size:,} bytes; a resource has at most {MOST_READ:,}.",
                    hint="read_memory_bank_file reads some lines: startLine, endLine.",
                    uri=uri,
                )
            data = await bank.files.read(info.path)
        except NotFound:
            raise NotFound("resource", uri, hint="resources/list names what there is.") from None
        return Document(_mime_type(path), as_shown(data))

    async def state(self, session: Session, uri: str) -> object:
        """A core file that is yet to be made can be waited for; of others there has to be one."""
        try:
            path = path_in(uri)
            address, found = await self._stamp(session, path)
        except InvalidInput:
            return NotFound.code
        except EverkeptError as error:
            return error.code
        if found is None and path not in CORE_FILES:
            return NotFound.code
        return address, found

    async def _bank(self, session: Session) -> Bank:
        return await self._banks.existing(Call(session, "resource"))

    async def _stamp(self, session: Session, path: str) -> tuple[str, Stamp | None]:
        """The address of the bank, and what tells one content of its file from another."""
        chosen = session.bank or ""
        look = self._recent(chosen)
        if look is None:
            async with self._locks[chosen]:  # whoever comes meanwhile waits for the same look
                look = self._recent(chosen) or await self._looked(session, chosen)
        if isinstance(look, Bank):
            return look.address, await _local_stamp(look, path)
        if look.fault is not None:
            raise look.fault.with_traceback(None)
        name = path if path == GRAPH_VIEW else matching(look.files, path)
        return look.address, look.files.get(name or "")

    async def _looked(self, session: Session, chosen: str) -> _Look | Bank:
        """A bank on this machine is asked about each file by itself."""
        try:
            bank = await self._bank(session)
            if not bank.files.is_remote:
                return bank
            look = _Look(self._clock(), bank.address, await _stamps(bank))
        except Unavailable as error:
            look = self._failed(chosen, error)
        self._looks[chosen] = look
        return look

    def _recent(self, chosen: str) -> _Look | None:
        look = self._looks.get(chosen)
        return look if look and self._clock() - look.at < REMOTE_INTERVAL else None

    def _failed(self, chosen: str, error: Unavailable) -> _Look:
        """A connection that is lost for a while changes no file."""
        log.info("no look at the memory bank: %s", error)
        before = self._looks.get(chosen)
        if before is None or before.fault is not None:
            return _Look(self._clock(), fault=error)
        return replace(before, at=self._clock())


async def _local_stamp(bank: Bank, path: str) -> Stamp | None:
    found = path if path == GRAPH_VIEW else await found_name(bank, path)
    info = await bank.files.info(found) if found else None
    return stamp_of(info) if info and not info.is_folder else None


async def _stamps(bank: Bank) -> dict[str, Stamp]:
    """One look for all who wait for something in the bank."""
    graph = await bank.files.info(GRAPH_VIEW)
    found = [*await searched_files(bank), *([graph] if graph else [])]
    return {info.path: stamp_of(info) for info in found}


def _info(path: str) -> ResourceInfo:
    description = DESCRIPTIONS.get(path, f"{path} of the memory bank")
    if path == GRAPH_VIEW:
        description = "The knowledge graph as people read it"
    return ResourceInfo(uri_of(path), path, description, _mime_type(path))


def _mime_type(path: str) -> str:
    return "application/json" if path.lower().endswith(".json") else MARKDOWN
