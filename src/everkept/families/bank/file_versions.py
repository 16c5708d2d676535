"""Earlier versions of a bank's files, and which version each session knows.

Before a write, the old content goes to the data folder, also for a bank on another machine. The bank's own folder is
the wrong place: it is often in a repository, where text that was removed on purpose would be shared. A write without an
ETag is compared with the content that the session knows, so that it cannot undo the work of others unnoticed.
"""

import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from everkept.core.files import FileStore
from everkept.core.sessions import Session
from everkept.core.text import clip_text, format_count
from everkept.core.times import Clock
from everkept.errors import Conflict, EtagMismatch, InvalidInput, NotFound, Refused, escape_name
from everkept.families.bank.bank_files import (
    BANK_LOCK,
    WriteOptions,
    as_text,
    compute_etag,
    decode_for_display,
    find_name,
    write_in_turn,
)
from everkept.families.bank.banks import Bank, get_last_part, get_parent
from everkept.families.bank.model import CURRENT_NAMES, name_versions_folder
from everkept.values import Value, replace

MAX_VERSIONS = 50  # of one file
MAX_BYTES = 8 * 1024 * 1024  # of all versions of one file, compressed; the newest is always kept
MAX_KNOWN_FILES = 1_000  # of one session
MAX_KNOWN_TEXTS = 32  # of those, files whose content is remembered to show the difference
MAX_TEXT_BYTES = 64 * 1024  # of a remembered content, compressed
MAX_NAMED_FILES = 3
MAX_DIFFERENCE_LINES = 40
MAX_DIFFERENCE_CHARACTERS = 2_000
MAX_COMPARED_BYTES = 200_000  # of each side; longer texts take too long to compare
MIN_ID_CHARACTERS = 4
ADDRESS_FILE = "bank.address"  # beside the versions of a bank

_VERSION = re.compile(r"([0-9a-f]{16})-(\d+)-([0-9a-f]{16})-([0-9a-f]{16})(?:-([0-9a-f]{16}))?", re.ASCII)

# Opens the folder of a bank's versions, by a name for it. With `make`, creates it.
OpenVersions = Callable[[str, bool], Awaitable[FileStore]]


class FileVersion(Value):
    """The content of a file before a write. `written_etag` is that of the content after it."""

    name: str
    path: str
    at: int
    size: int
    etag: str
    written_etag: str
    stored_size: int  # compressed
    undoes: int | None = None  # time of the write that the write reversed


class FileWrite(Value):
    """One write of a bank's files: the versions before it. `undoes` is the time of the write that it reversed."""

    address: str
    at: int
    versions: tuple[FileVersion, ...]
    is_undone: bool = False

    @property
    def undoes(self) -> int | None:
        return self.versions[0].undoes

    @property
    def summary(self) -> str:
        return self.describe("Edited" if self.undoes is None else "Restored")

    def describe(self, verb: str) -> str:
        names = [escape_name(version.name) for version in self.versions]
        more = f" and {format_count(len(names) - MAX_NAMED_FILES, 'more file')}" if len(names) > MAX_NAMED_FILES else ""
        place = get_last_part(get_parent(self.address)) or self.address
        return f"{verb} {', '.join(names[:MAX_NAMED_FILES])}{more} in bank {escape_name(place)}"


class FileVersions:
    """The versions of all banks that this installation has written to."""

    def __init__(self, open_folder: OpenVersions, clock: Clock) -> None:
        self._open_folder = open_folder
        self._clock = clock

    def attach(self, bank: Bank, session: Session) -> Bank:
        """Return the bank with the history of its files, for the calls of a session."""
        return replace(bank, history=CallHistory(self, bank.address, session))

    async def keep(self, address: str, changes: Mapping[str, tuple[bytes, bytes]], undoes: int | None = None) -> None:
        """Keep the old content of files before a write. All of them get the same time."""
        folder = await self._open(address, make=True)
        if await _read_address(folder) != address:
            await folder.write(ADDRESS_FILE, address.encode())
        known = {name: await _list_versions(folder, name) for name in changes}
        at = max([self._clock(), *(versions[0].at + 1 for versions in known.values() if versions)])
        for name, (before, after) in changes.items():
            ends = f"-{undoes:016x}" if undoes is not None else ""
            entry = f"{at:016x}-{len(before)}-{compute_etag(before)}-{compute_etag(after)}{ends}"
            packed = zlib.compress(before, 1)
            # Not flushed to the disk: a power cut may lose a version, but never the file itself.
            await folder.append(f"{name}/{entry}", packed)
            await _prune(folder, known[name], len(packed))

    async def trust(self, bank: Bank) -> None:
        """Count the bank as used by this user, like a write to it does."""
        await self._open(bank.address, make=True)

    async def list_versions(self, bank: Bank, name: str) -> list[FileVersion]:
        """Return the versions of a file, newest first."""
        found = await _find_path(bank, name)
        return await _list_versions(await self._open(bank.address), CURRENT_NAMES.get(found, found))

    async def list_writes(self, address: str) -> list[FileWrite]:
        """Return the writes of a bank whose versions are kept, newest first."""
        folder = await self._open(address)
        by_time: dict[int, list[FileVersion]] = {}
        for name in await _list_names(folder):
            for version in await _list_versions(folder, name):
                by_time.setdefault(version.at, []).append(version)
        writes = sorted(by_time.items(), reverse=True)
        done: set[int | None] = set()
        for at, versions in writes:
            if at not in done:  # an undo that was itself undone does not count
                done |= {version.undoes for version in versions}
        return [
            FileWrite(address, at, tuple(sorted(versions, key=lambda version: version.name)), at in done)
            for at, versions in writes
        ]

    async def list_addresses(self) -> list[str]:
        """Return the banks with versions that know their bank."""
        found: list[str] = []
        with suppress(NotFound):
            for bank in await (await self._open_folder("", False)).list():
                address = await _read_address(await self._open_folder(bank.name, False))
                found += [address] if address and name_versions_folder(address) == bank.name else []
        return found

    async def find_last_write(self, bank: Bank) -> FileWrite | None:
        """Return the newest write that is neither undone nor an undo."""
        writes = await self.list_writes(bank.address)
        return next((write for write in writes if write.undoes is None and not write.is_undone), None)

    async def read(self, bank: Bank, version: FileVersion) -> bytes:
        folder = await self._open(bank.address)
        try:
            data = zlib.decompress(await folder.read(version.path))
        except (zlib.error, NotFound):
            data = None
        if data is None or compute_etag(data) != version.etag:
            raise Refused(
                f"The version {version.etag} of {escape_name(version.name)} is damaged. Nothing was changed.",
                hint="Choose another version from `everkept bank history`.",
            )
        return data

    async def undo(self, bank: Bank, write: FileWrite) -> None:
        """Reverse a write: its files have their earlier content again. Raise Conflict if one changed since.

        The replaced content is kept too. Files that the write created stay.
        """
        versions = write.versions
        contents = [(version, await self.read(bank, version)) for version in versions]
        bank = self.attach(bank, Session())

        async def write_all() -> None:
            for version in versions:
                if compute_etag(await _read_or_empty(bank, version.name)) != version.written_etag:
                    raise Conflict(
                        f"{escape_name(version.name)} changed after that write. Nothing was undone.",
                        hint=f"To restore a version, run `everkept bank restore {escape_name(version.name)}`.",
                        filename=version.name,
                    )
            for version, data in contents:
                await _write(bank, version.name, data, WriteOptions(undoes=version.at))

        await bank.files.run_locked(BANK_LOCK, write_all)

    async def restore(self, bank: Bank, name: str, version_id: str | None) -> FileVersion:
        """Write an earlier content of a file, by default the newest. The replaced content is kept too."""
        versions = await self.list_versions(bank, name)
        version = _choose_version(versions, name, version_id)
        data, bank = await self.read(bank, version), self.attach(bank, Session())
        await bank.files.run_locked(BANK_LOCK, lambda: _write(bank, version.name, data, WriteOptions()))
        return version

    async def remove_matching(self, bank: Bank, is_meant: Callable[[str], object]) -> int:
        """Permanently delete the versions of a bank whose text matches. Return their number."""
        return await _remove(await _list_matching(await self._open(bank.address), is_meant))

    async def count_all_matching(self, is_meant: Callable[[str], object]) -> int:
        """Return the number of versions of all banks whose text matches."""
        return len(await self._list_all_matching(is_meant))

    async def remove_all_matching(self, is_meant: Callable[[str], object]) -> int:
        """Permanently delete the versions of all banks whose text matches. Return their number."""
        return await _remove(await self._list_all_matching(is_meant))

    async def _list_all_matching(self, is_meant: Callable[[str], object]) -> list[tuple[FileStore, str]]:
        found: list[tuple[FileStore, str]] = []
        with suppress(NotFound):
            for bank in await (await self._open_folder("", False)).list():
                found += await _list_matching(await self._open_folder(bank.name, False), is_meant)
        return found

    async def _open(self, address: str, *, make: bool = False) -> FileStore:
        return await self._open_folder(name_versions_folder(address), make)


async def _read_address(folder: FileStore) -> str:
    """Return the bank's address in a folder of versions. Empty for a folder of an earlier version."""
    try:
        return as_text(await folder.read(ADDRESS_FILE))
    except NotFound:
        return ""


async def _list_matching(folder: FileStore, is_meant: Callable[[str], object]) -> list[tuple[FileStore, str]]:
    """Return the paths of the versions in a folder whose text matches."""
    found: list[tuple[FileStore, str]] = []
    for name in await _list_names(folder):
        for version in await _list_versions(folder, name):
            try:
                is_found = bool(is_meant(decode_for_display(zlib.decompress(await folder.read(version.path)))))
            except zlib.error:  # damaged, so no one can tell
                is_found = True
            found += [(folder, version.path)] if is_found else []
    return found


async def _remove(versions: Sequence[tuple[FileStore, str]]) -> int:
    for folder, path in versions:
        await folder.remove(path)
    return len(versions)


class CallHistory:
    """The history of a bank's files for one session."""

    def __init__(self, versions: FileVersions, address: str, session: Session) -> None:
        self._versions = versions
        self._address = address
        self._session = session

    async def keep(self, changes: Mapping[str, tuple[bytes, bytes]], undoes: int | None = None) -> None:
        """Keep the old content of each file that a write changes."""
        changed = {CURRENT_NAMES.get(name, name): pair for name, pair in changes.items() if pair[0] != pair[1]}
        if changed:
            await self._versions.keep(self._address, changed, undoes)

    def note(self, name: str, data: bytes) -> None:
        """Remember that the session knows this content of a file."""
        if not self._session.stateful:
            return
        known = self._session.known_files
        known.pop(self._build_key(name), None)
        packed = zlib.compress(data, 1) if len(data) <= MAX_COMPARED_BYTES else None
        text = packed if packed is not None and len(packed) <= MAX_TEXT_BYTES else None
        known[self._build_key(name)] = (compute_etag(data), text)
        if len(known) > MAX_KNOWN_FILES:
            del known[next(iter(known))]
        with_text = [key for key, (_, kept) in known.items() if kept is not None]
        for key in with_text[:-MAX_KNOWN_TEXTS]:
            known[key] = (known[key][0], None)

    def follow(self, name: str, before: bytes, after: bytes) -> None:
        """Remember the session's own edit, if the session knew the content before it."""
        etag, _ = self._session.known_files.get(self._build_key(name), ("", None))
        if etag == compute_etag(before):
            self.note(name, after)

    def check_known(self, name: str, current: bytes) -> None:
        """Raise EtagMismatch if the session knows another content, because someone changed the file since then."""
        etag, text = self._session.known_files.get(self._build_key(name), (None, None))
        if etag is None or etag == compute_etag(current):
            return
        error = EtagMismatch(name, etag, compute_etag(current))
        error.message = f"{escape_name(name)} was changed by someone else since you read it. Nothing was written."
        error.hint = "Read it again and include the change, or pass force=true to overwrite it."
        difference = None if text is None else _describe_difference(zlib.decompress(text), current)
        if difference is not None:
            error.hint += f"\n\nThe change:\n{difference}"
            error.facts = {**error.facts, "difference": difference}
        raise error

    def _build_key(self, name: str) -> str:
        return f"{self._address}\n{CURRENT_NAMES.get(name, name)}"


async def _find_path(bank: Bank, name: str) -> str:
    """Return the path of a file in the bank. Only core files have names in several forms."""
    return name if "/" in name else await find_name(bank, name) or name


async def _read_or_empty(bank: Bank, name: str) -> bytes:
    """Return the content, or nothing for a file that was deleted."""
    try:
        return await bank.files.read(await _find_path(bank, name))
    except NotFound:
        return b""


async def _write(bank: Bank, name: str, data: bytes, options: WriteOptions) -> None:
    if "/" not in name:
        await write_in_turn(bank, name, as_text(data), options)
        return
    if bank.history:
        await bank.history.keep({name: (await _read_or_empty(bank, name), data)}, options.undoes)
    await bank.files.write(name, data)


async def _list_names(folder: FileStore, place: str = "") -> list[str]:
    """Return the names that may have versions: the folders, also inside others."""
    found: list[str] = []
    with suppress(NotFound):
        for entry in await folder.list(place):
            if entry.is_folder:
                found += [entry.path, *await _list_names(folder, entry.path)]
    return found


async def _list_versions(folder: FileStore, name: str) -> list[FileVersion]:
    """Return the versions of a file, newest first."""
    try:
        entries = await folder.list(name)
    except NotFound:
        return []
    found = [(entry, _VERSION.fullmatch(entry.name)) for entry in entries]
    versions = [
        FileVersion(name, e.path, int(m[1], 16), int(m[2]), m[3], m[4], e.size, int(m[5], 16) if m[5] else None)
        for e, m in found
        if m is not None
    ]
    return sorted(versions, key=lambda version: version.at, reverse=True)


async def _prune(folder: FileStore, older: Sequence[FileVersion], used: int) -> None:
    """Delete the oldest versions that are too many or too large beside the newest one, which uses some bytes."""
    for number, version in enumerate(older, start=1):
        used += version.stored_size
        if number >= MAX_VERSIONS or used > MAX_BYTES:
            await folder.remove(version.path)


def _choose_version(versions: Sequence[FileVersion], name: str, version_id: str | None) -> FileVersion:
    if version_id is not None and len(version_id) < MIN_ID_CHARACTERS:
        raise InvalidInput(f'"{version_id}" must have at least {MIN_ID_CHARACTERS} characters of an id.')
    chosen = [version for version in versions if version.etag.startswith(version_id or "")]
    if not chosen:
        shown = escape_name(name) if version_id is None else f"{escape_name(name)} with id {clip_text(version_id)}"
        raise NotFound(
            "version",
            name,
            message=f"No earlier version of {shown} is kept.",
            hint="List the versions with `everkept bank history FILE`.",
        )
    return chosen[0]


def _describe_difference(old: bytes, new: bytes) -> str | None:
    """Return the changed lines, or None if a text is too long to compare."""
    import difflib  # only a refused write needs it

    if len(new) > MAX_COMPARED_BYTES:
        return None
    before, after = (decode_for_display(side).splitlines() for side in (old, new))
    lines = list(difflib.unified_diff(before, after, "as you read it", "the file now", lineterm="", n=1))
    more = ["…"] if len(lines) > MAX_DIFFERENCE_LINES else []
    shown = "\n".join([*lines[:MAX_DIFFERENCE_LINES], *more])
    return shown if len(shown) <= MAX_DIFFERENCE_CHARACTERS else f"{shown[:MAX_DIFFERENCE_CHARACTERS]}…"
