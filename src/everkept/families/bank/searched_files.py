"""The files of a bank that are searched, each read once as long as it does not change."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from everkept.core.files import FileInfo
from everkept.core.times import Clock
from everkept.errors import Refused
from everkept.families.bank.banks import Bank
from everkept.families.bank.file_names import (
    ENDINGS,
    candidates,
    checked_name,
    leads_astray,
    matching,
    written_name,
)
from everkept.families.bank.file_text import as_utf8
from everkept.families.bank.model import CORE_FILES, LEGACY_NAMES
from everkept.values import Value, field

MOST_KEPT = 32 * 1024 * 1024  # bytes of all files together
# A file that was changed so shortly before it was read may be changed again with the same time:
# over SFTP times are whole seconds.
UNSETTLED = 2_000_000  # microseconds

FEW = 16  # names that are looked up one by one; for more the folder is listed

Stamp = tuple[int, int]  # size and time of the last change

_CORE_NAMES = frozenset(name.lower() for name in (*CORE_FILES, *LEGACY_NAMES.values()))


class _Shelf(Value, frozen=False):
    """What is kept of one bank."""

    files: dict[str, tuple[Stamp, bytes]] = field(default_factory=dict[str, tuple[Stamp, bytes]])
    size: int = 0

    def drop(self, name: str) -> None:
        if name in self.files:
            self.size -= len(self.files.pop(name)[1])


class Texts:
    """A bounded store of what was read.

    Files are looked through one after the other, so that throwing out the oldest would throw out
    each before it is used again: what does not fit beside the others of its bank is not kept, and
    makes room only by what belongs to banks that were used longer ago.
    """

    def __init__(self, clock: Clock, most: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()

    async def read(self, bank: Bank, info: FileInfo) -> bytes:
        """The file as it was when `info` was found, or newer."""
        shelf = self._shelf(bank)
        stamp, data = shelf.files.get(info.path, (None, b""))
        if stamp == stamp_of(info):
            return data
        shelf.drop(info.path)
        data = await bank.files.read(info.path)
        if len(data) == info.size and is_settled(info, self._clock()):
            self._keep(shelf, info, data)
        return data

    def held(self, bank: Bank, files: Sequence[FileInfo]) -> dict[str, bytes]:
        """Those of the files that are at hand as they are now."""
        kept = self._shelf(bank).files
        found: dict[str, bytes] = {}
        for info in files:
            stamp, data = kept.get(info.path, (None, b""))
            if stamp == (info.size, info.modified_at):
                found[info.path] = data
        return found

    def forget_others(self, bank: Bank, present: set[str]) -> None:
        """Files that are gone need no room."""
        if shelf := self._shelves.get(bank.address):
            for name in shelf.files.keys() - present:
                shelf.drop(name)

    def _shelf(self, bank: Bank) -> _Shelf:
        shelf = self._shelves.setdefault(bank.address, _Shelf())
        self._shelves.move_to_end(bank.address)
        return shelf

    def _keep(self, shelf: _Shelf, info: FileInfo, data: bytes) -> None:
        if shelf.size + len(data) > self._most:
            return
        shelf.drop(info.path)  # another call may have been quicker
        shelf.files[info.path] = (stamp_of(info), data)
        shelf.size += len(data)
        while sum(each.size for each in self._shelves.values()) > self._most:
            oldest = next(address for address, each in self._shelves.items() if each is not shelf)
            del self._shelves[oldest]


def stamp_of(info: FileInfo) -> Stamp:
    return info.size, info.modified_at


def is_settled(info: FileInfo, now: int) -> bool:
    """Whether a further change would give the file another time."""
    return abs(now - info.modified_at) >= UNSETTLED


def as_shown(data: bytes) -> str:
    """For answers and the index: what is no text is shown as such, a byte order mark not at all."""
    return as_utf8(data).decode("utf-8", "replace").removeprefix("\ufeff")


async def searched_files(bank: Bank) -> list[FileInfo]:
    """The core files in their order, then the others by name."""
    core: list[FileInfo] = []
    others: list[FileInfo] = []
    for info in await bank.files.list():  # by name; at the root a path is one
        name = info.path.lower()
        if not name.endswith(ENDINGS) or name[0] == "." or info.is_folder:
            continue
        if info.target is None or not leads_astray(info.target):
            (core if name in _CORE_NAMES else others).append(info)
    return sorted(core, key=_place) + others


async def named_files(bank: Bank, names: Sequence[str]) -> tuple[list[FileInfo], list[str]]:
    """Those of the names that are there, in the order in which they are searched, and the others.

    The folder is listed only for a name that is spelled otherwise there. Refused for a name that
    is none of a bank.
    """
    wanted = list(dict.fromkeys(map(checked_name, names)))
    found = {name: await _info(bank, name) for name in wanted} if len(wanted) <= FEW else {}
    missing = [name for name in wanted if found.get(name) is None]
    if missing:
        listed = {info.path: info for info in await searched_files(bank)}
        found |= {name: listed.get(matching(listed, name) or "") for name in missing}
    infos = {info.path: info for info in found.values() if info is not None}
    return sorted(infos.values(), key=_place), [name for name in wanted if found[name] is None]


async def _info(bank: Bank, name: str) -> FileInfo | None:
    for candidate in candidates(name):
        with suppress(Refused):  # a link that leads out
            info = await bank.files.info(candidate)
            if info is not None and not info.is_folder and not leads_astray(info.target):
                return info
    return None


def _place(info: FileInfo) -> tuple[int, str]:
    today = written_name(info.path)
    return (CORE_FILES.index(today) if today in CORE_FILES else len(CORE_FILES), info.path)
