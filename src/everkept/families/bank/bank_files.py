"""The files of a bank: found under any of their names, read as text, edited in turn."""

import asyncio
import codecs
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TypeVar

from everkept.core.files import FileInfo
from everkept.core.runtime import finished, is_on_event_loop
from everkept.core.secrets import masked
from everkept.errors import (
    EtagMismatch,
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    Refused,
    visible,
)
from everkept.families.bank.banks import (
    Bank,
    candidates,
    checked_name,
    checked_new_name,
    leads_astray,
    matching,
    written_name,
)
from everkept.families.bank.markdown_sections import left_open
from everkept.families.bank.model import LEGACY_NAMES
from everkept.tools.tool import Warned
from everkept.values import Value

# Those of UTF-32 first: the one of UTF-16 is how one of them begins.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_UNDECODED = re.compile("[\udc80-\udcff]")
NOT_UTF8 = "not_utf8"


def marked_encoding(data: bytes) -> str | None:
    """What a byte order mark says, unless it is that of UTF-8."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def as_utf8(data: bytes) -> bytes:
    """The same text in UTF-8, where a mark tells how to read it; else the bytes as they are."""
    encoding = marked_encoding(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def as_text(data: bytes) -> str:
    """Bytes that are no text survive the way there and back."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def presentable(text: str) -> str:
    """What came from bytes that are no text appears as U+FFFD."""
    return _UNDECODED.sub("\ufffd", text)


def check_editable(name: str, data: bytes) -> None:
    """Refused for what an edit could not keep whole; single bytes that are no UTF-8 can be kept."""
    if reason := _no_text(data):
        raise Refused(
            f"{visible(name)} was not changed: {reason}, and an edit would break it.",
            hint="Save it as UTF-8 first.",
            filename=name,
        )


def decoding_warning(name: str, data: bytes) -> Warned | None:
    """About a file that is no plain UTF-8, for who is shown its text."""
    if reason := _no_text(data):
        advice = "tools that edit refuse it until it is saved as UTF-8."
        return Warned(NOT_UTF8, f"{visible(name)}: {reason}; {advice}")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Warned(
            NOT_UTF8,
            f"{visible(name)} is not UTF-8 (first at byte {error.start}): what cannot be decoded "
            "appears as U+FFFD, and writing this text back would lose it.",
        )
    return None


def _no_text(data: bytes) -> str | None:
    if encoding := marked_encoding(data):
        return f"it is {encoding}, not UTF-8"
    return "it holds NUL bytes, as no text in UTF-8 does" if b"\0" in data else None


_LINE_END = re.compile(rb"\r\n|\r|\n")


class Lines(Value):
    """Some lines of a file, the first and the last of them by number, and how many it has."""

    data: bytes
    first: int
    last: int
    total: int


def shown(data: bytes) -> str:
    """What cannot be decoded becomes U+FFFD; all else stays, the mark of UTF-8 included."""
    return as_utf8(data).decode("utf-8", "replace")


def picked(name: str, data: bytes, start: int | None, end: int | None) -> Lines:
    """From the line `start` to the line `end`, both included; an end beyond the last is fine.

    Line feeds and carriage returns end a line, as everywhere.
    """
    ends = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
    total = ends + (not data.endswith((b"\n", b"\r")) and bool(data))
    first, last = start or 1, total if end is None else min(end, total)
    if end is not None and end < first:
        raise InvalidInput(
            f"`endLine` is {end}, which is before `startLine`, {first}.", argument="endLine"
        )
    if first > max(total, 1):
        raise InvalidInput(
            f"`startLine` is {first}; {visible(name)} has {total} lines.",
            argument="startLine",
            lines=total,
        )
    begin = _after_lines(data, 0, first - 1)
    return Lines(data[begin : _after_lines(data, begin, last - first + 1)], first, last, total)


def _after_lines(data: bytes, at: int, count: int) -> int:
    """Where the line begins that comes so many lines after the one that begins at `at`."""
    if not count:
        return at
    found = next(islice(_LINE_END.finditer(data, at), count - 1, None), None)
    return len(data) if found is None else found.end()


def edit_warnings(texts: Mapping[str, str]) -> list[Warned]:
    """About files by their names: what is no UTF-8 in them, and what nobody closed."""
    found: list[Warned] = []
    for name, text in texts.items():
        if warning := decoding_warning(name, as_bytes(text)):
            found.append(warning)
        if opened := left_open(text):
            message = f"{name}: {opened}, and hides what follows where it is shown. Close it."
            found.append(Warned("left_open", message))
    return found


_AT_ONCE = 200_000  # characters; others have their turn between two such stretches


async def scan_warnings(texts: Mapping[str, str]) -> list[Warned] | None:
    """By the names of the files that the texts were written to."""
    found: list[Warned] = []
    for name, text in texts.items():
        kinds: dict[str, None] = {}
        for stretch in _stretches(text):
            kinds |= dict.fromkeys(masked(stretch)[1])
            await asyncio.sleep(0)
        if kinds:
            message = f"{name} holds what looks like a secret ({', '.join(kinds)}); it was kept."
            found.append(Warned("secret_in_file", message))
    return found or None


def _stretches(text: str) -> Iterator[str]:
    """Cut between lines where there are any."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _AT_ONCE) + 1
        if end <= at or at + _AT_ONCE >= len(text):
            end = at + _AT_ONCE
        yield text[at:end]
        at = end


def with_warnings(sentence: str, warnings: Iterable[Warned] | None) -> str:
    return "\n".join([sentence, *(f"Warning: {warned.message}" for warned in warnings or ())])


LOCK = "bank"

# Gets the text of a file, None where there is no file; gives the new one, None to leave it.
Change = Callable[[str | None], str | None]


class FileText(Value):
    name: str
    text: str
    etag: str


class _Planned(Value):
    """A file that is to get another text; `found` and `before` are None if it is new."""

    name: str
    found: str | None
    before: bytes | None
    after: str


def etag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


async def read(bank: Bank, name: str) -> FileText:
    """Raises FileNotFound, and Refused for a name that is none of a bank."""
    found, data = await read_bytes(bank, name)
    return FileText(found, as_text(data), etag_of(data))


async def read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    """The name that the file has, and what it holds."""
    [read] = await bank.files.run_all([partial(_read_bytes, bank, name)])
    return read


async def _read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    found = await found_name(bank, name)
    if found is None:
        info = await bank.files.info(name)
        raise _is_folder(name) if info is not None and info.is_folder else FileNotFound(name)
    try:
        return found, await bank.files.read(found)
    except NotFound:
        raise FileNotFound(name) from None


async def write(bank: Bank, name: str, text: str, if_match: str | None = None) -> FileText:
    """Whole; with `if_match` only where the file still has that tag. Raises EtagMismatch."""
    return await bank.files.run_locked(
        LOCK, lambda: _write_in_turn(bank, name, text, if_match, None)
    )


async def write_locked(
    bank: Bank,
    name: str,
    text: str,
    if_match: str | None = None,
    among: Collection[str] | None = None,
) -> FileText:
    """For who holds the lock already, and may know the names of the folder's files."""
    return await finished(_write_in_turn(bank, name, text, if_match, among))


async def _write_in_turn(
    bank: Bank, name: str, text: str, if_match: str | None, among: Collection[str] | None
) -> FileText:
    found = await found_name(bank, name, among)
    if if_match:
        before = None if found is None else await _bytes_or_none(bank, found)
        if before is None:
            raise FileNotFound(name)
        if (current := etag_of(before)) != if_match:
            raise EtagMismatch(found or name, if_match, current)
    data = as_bytes(text)
    target = await _put(bank, name, found, data)
    return FileText(target, text, etag_of(data))


async def edit(bank: Bank, changes: Mapping[str, Change]) -> dict[str, FileText]:
    """Changes files in their order, with nobody in between; what stays as it is, is not written.

    A change that raises, a write that fails, and a caller that is cancelled leave every file as it
    was. What is no text in UTF-8 is Refused.
    """
    edits = _Edits(bank, changes)
    return await bank.files.run_locked(LOCK, edits.make, edits.take_back)


async def edit_locked(bank: Bank, changes: Mapping[str, Change]) -> dict[str, FileText]:
    """For work that runs under the lock already."""
    return await _Edits(bank, changes).make()


async def text_or_none(bank: Bank, name: str) -> str | None:
    """Of a file by its exact name."""
    data = await _bytes_or_none(bank, name)
    return None if data is None else as_text(data)


async def found_name(bank: Bank, name: str, among: Collection[str] | None = None) -> str | None:
    """The name under which a file is there: as given, as it is written today, or as it once was.

    `among` are the names of the folder's files, where they are known.
    """
    checked_name(name)
    if among is not None:
        return matching(among, name)
    for candidate in candidates(name):
        info = await bank.files.info(candidate)
        if info is not None and not info.is_folder:
            _check_link(info)
            return candidate
    return matching(await file_names(bank), name)


async def file_names(bank: Bank) -> list[str]:
    """Of the files at the root of the bank that tools can reach."""
    try:
        seen = await bank.files.survey()
    except NotFound:
        return []
    astray = {name for name, target in seen.links.items() if leads_astray(target)}
    return [name for name in seen.files if name[0] != "." and name not in astray]


async def settled_name(bank: Bank, name: str) -> str:
    """The name to write under; a file that has only its old name gets the new one first."""
    return await _settled(bank, name, await found_name(bank, name))


def _changed(name: str, before: bytes | None, change: Change) -> str | None:
    """The new text; None where it stays as it is."""
    if before is None:
        return change(None)
    old = as_text(before)
    try:
        new = change(old)
    except EverkeptError:
        check_editable(name, before)  # of which it would not say anything true
        raise
    if new is None or new == old:
        return None
    check_editable(name, before)
    _check_still_open(name, old, new)
    return new


def _check_still_open(name: str, old: str, new: str) -> None:
    """A fence in the new text could end one that nothing closes, and hide the sections between."""
    if (opened := left_open(old)) and not left_open(new):
        raise Refused(
            f"{visible(name)} was not changed: {opened}, and the new text would end it.",
            hint="Close it where it should end, then try again.",
            filename=name,
        )


def _check_link(info: FileInfo) -> None:
    """A link must not make a file of what no name of a bank's file could reach."""
    if leads_astray(info.target):
        raise Refused(
            f'"{visible(info.name)}" is a link to "{visible(info.target or "")}", which is no file '
            "of the bank.",
            hint="A link may lead to a file at the root of the bank that ends in .md or .json.",
            name=visible(info.name),
        )


def _is_folder(name: str) -> FileNotFound:
    error = FileNotFound(name)
    error.message = f'"{visible(name)}" is a folder, not a file.'
    return error


async def _bytes_or_none(bank: Bank, name: str) -> bytes | None:
    try:
        return await bank.files.read(name)
    except NotFound:
        return None


async def _settled(bank: Bank, name: str, found: str | None) -> str:
    if found is None:
        new = written_name(checked_new_name(name))
        if there := await bank.files.info(new):
            _check_link(there)
        return new
    if found in LEGACY_NAMES.values():
        await bank.files.rename(found, written_name(found))
        return written_name(found)
    return found


async def _put(bank: Bank, name: str, found: str | None, data: bytes) -> str:
    """The name that it was written under; what fails leaves the old file under its old name."""
    target = await _settled(bank, name, found)
    try:
        await bank.files.write(target, data)
    except EverkeptError:
        if found is not None and found != target:
            await bank.files.rename(target, found)
        raise
    return target


class _Edits:
    """Some files that get other texts: all of them, or none.

    A canceled caller's edits are taken back: a caller that tries again would have them twice.
    """

    def __init__(self, bank: Bank, changes: Mapping[str, Change]) -> None:
        self._bank = bank
        self._changes = changes
        self._begun: list[tuple[_Planned, str]] = []

    async def make(self) -> dict[str, FileText]:
        planned = [plan for name in self._changes if (plan := await self._plan(name))]
        try:
            for plan in planned:
                self._begun.append((plan, await _settled(self._bank, plan.name, plan.found)))
            contents = {target: as_bytes(plan.after) for plan, target in self._begun}
            await self._bank.files.write_all(contents)
        except EverkeptError as error:
            if changed := await self._put_all_back():
                error.facts = {**error.facts, "changed": changed}
            raise
        return {
            plan.name: FileText(target, plan.after, etag_of(contents[target]))
            for plan, target in self._begun
        }

    async def take_back(self) -> None:
        await self._put_all_back()

    async def _plan(self, name: str) -> _Planned | None:
        """What a file is to hold; None if it stays as it is."""
        found = await found_name(self._bank, name)
        before = None if found is None else await _bytes_or_none(self._bank, found)
        work = partial(_changed, found or name, before, self._changes[name])
        after = await aside(len(before or b""), work)
        return None if after is None else _Planned(name, found, before, after)

    async def _put_all_back(self) -> list[str]:
        """The names of those that could not be put back."""
        begun, self._begun = self._begun, []
        return [target for plan, target in begun if not await _put_back(self._bank, plan, target)]


async def _put_back(bank: Bank, plan: _Planned, target: str) -> bool:
    """Whether the file is as it was before; a store that is in trouble may not let it be."""
    try:
        if plan.before is None or plan.found is None:
            await bank.files.remove(target)
            return True
        if await _bytes_or_none(bank, target) != plan.before:
            await bank.files.write(target, plan.before)
        if plan.found != target:
            await bank.files.rename(target, plan.found)
    except EverkeptError:
        return False
    return True


LARGE = 1_000_000  # characters or bytes; what is smaller is done before a thread would begin

T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of work that only computes, on a text of so many characters."""
    return await asyncio.to_thread(work) if size > LARGE and is_on_event_loop() else work()
