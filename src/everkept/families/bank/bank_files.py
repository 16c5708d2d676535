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
from everkept.core.runtime import is_on_event_loop, wait_finished
from everkept.core.secrets import mask_text
from everkept.errors import EtagMismatch, EverkeptError, FileNotFound, InvalidInput, NotFound, Refused, escape_name
from everkept.families.bank.banks import (
    Bank,
    check_name,
    check_new_name,
    find_matching,
    is_outside_bank,
    list_candidates,
    normalize_name,
)
from everkept.families.bank.markdown_sections import find_open_block
from everkept.families.bank.model import LEGACY_NAMES
from everkept.tools.tool import ToolWarning
from everkept.values import Value

# Those of UTF-32 first: the one of UTF-16 is how one of them begins.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_UNDECODED_BYTE = re.compile("[\udc80-\udcff]")
NOT_UTF8 = "not_utf8"


def detect_encoding(data: bytes) -> str | None:
    """What a byte order mark says, unless it is that of UTF-8."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def as_utf8(data: bytes) -> bytes:
    """The same text in UTF-8, where a mark tells how to read it; else the bytes as they are."""
    encoding = detect_encoding(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def as_text(data: bytes) -> str:
    """Bytes that are no text survive the way there and back."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def replace_undecoded(text: str) -> str:
    """What came from bytes that are no text appears as U+FFFD."""
    return _UNDECODED_BYTE.sub("\ufffd", text)


def check_editable(name: str, data: bytes) -> None:
    """Refused for what an edit could not keep whole; single bytes that are no UTF-8 can be kept."""
    if reason := _find_binary_reason(data):
        raise Refused(
            f"{escape_name(name)} was not changed: {reason}, and an edit would break it.",
            hint="Save it as UTF-8 first.",
            filename=name,
        )


def build_decoding_warning(name: str, data: bytes) -> ToolWarning | None:
    """About a file that is no plain UTF-8, for who is shown its text."""
    if reason := _find_binary_reason(data):
        advice = "tools that edit refuse it until it is saved as UTF-8."
        return ToolWarning(NOT_UTF8, f"{escape_name(name)}: {reason}; {advice}")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return ToolWarning(
            NOT_UTF8,
            f"{escape_name(name)} is not UTF-8 (first at byte {error.start}): what cannot be "
            f"decoded "
            "appears as U+FFFD, and writing this text back would lose it.",
        )
    return None


def _find_binary_reason(data: bytes) -> str | None:
    if encoding := detect_encoding(data):
        return f"it is {encoding}, not UTF-8"
    return "it holds NUL bytes, as no text in UTF-8 does" if b"\0" in data else None


_LINE_END = re.compile(rb"\r\n|\r|\n")


class LineRange(Value):
    """Some lines of a file, the first and the last of them by number, and how many it has."""

    data: bytes
    first: int
    last: int
    total: int


def decode_for_display(data: bytes) -> str:
    """What cannot be decoded becomes U+FFFD; all else stays, the mark of UTF-8 included."""
    return as_utf8(data).decode("utf-8", "replace")


def select_lines(name: str, data: bytes, start: int | None, end: int | None) -> LineRange:
    """From the line `start` to the line `end`, both included; an end beyond the last is fine.

    Line feeds and carriage returns end a line, as everywhere.
    """
    ends = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
    total = ends + (not data.endswith((b"\n", b"\r")) and bool(data))
    first, last = start or 1, total if end is None else min(end, total)
    if end is not None and end < first:
        raise InvalidInput(f"`endLine` is {end}, which is before `startLine`, {first}.", argument="endLine")
    if first > max(total, 1):
        raise InvalidInput(
            f"`startLine` is {first}; {escape_name(name)} has {total} lines.", argument="startLine", lines=total
        )
    begin = _skip_lines(data, 0, first - 1)
    return LineRange(data[begin : _skip_lines(data, begin, last - first + 1)], first, last, total)


def _skip_lines(data: bytes, at: int, count: int) -> int:
    """Where the line begins that comes so many lines after the one that begins at `at`."""
    if not count:
        return at
    found = next(islice(_LINE_END.finditer(data, at), count - 1, None), None)
    return len(data) if found is None else found.end()


def find_edit_warnings(texts: Mapping[str, str]) -> list[ToolWarning]:
    """About files by their names: what is no UTF-8 in them, and what nobody closed."""
    found: list[ToolWarning] = []
    for name, text in texts.items():
        if warning := build_decoding_warning(name, as_bytes(text)):
            found.append(warning)
        if opened := find_open_block(text):
            message = f"{name}: {opened}, and hides what follows where it is shown. Close it."
            found.append(ToolWarning("left_open", message))
    return found


_STRETCH_CHARACTERS = 200_000  # others have their turn between two such stretches


async def find_secret_warnings(texts: Mapping[str, str]) -> list[ToolWarning] | None:
    """By the names of the files that the texts were written to."""
    found: list[ToolWarning] = []
    for name, text in texts.items():
        kinds: dict[str, None] = {}
        for stretch in _split_text(text):
            kinds |= dict.fromkeys(mask_text(stretch)[1])
            await asyncio.sleep(0)
        if kinds:
            message = f"{name} holds what looks like a secret ({', '.join(kinds)}); it was kept."
            found.append(ToolWarning("secret_in_file", message))
    return found or None


def _split_text(text: str) -> Iterator[str]:
    """Cut between lines where there are any."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _STRETCH_CHARACTERS) + 1
        if end <= at or at + _STRETCH_CHARACTERS >= len(text):
            end = at + _STRETCH_CHARACTERS
        yield text[at:end]
        at = end


def append_warnings(sentence: str, warnings: Iterable[ToolWarning] | None) -> str:
    return "\n".join([sentence, *(f"Warning: {warned.message}" for warned in warnings or ())])


BANK_LOCK = "bank"

# Gets the text of a file, None where there is no file; gives the new one, None to leave it.
TextChange = Callable[[str | None], str | None]


class FileText(Value):
    name: str
    text: str
    etag: str


class _PlannedEdit(Value):
    """A file that is to get another text; `found` and `before` are None if it is new."""

    name: str
    found: str | None
    before: bytes | None
    after: str


def compute_etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


async def read(bank: Bank, name: str) -> FileText:
    """Raises FileNotFound, and Refused for a name that is none of a bank."""
    found, data = await read_bytes(bank, name)
    return FileText(found, as_text(data), compute_etag(data))


async def read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    """The name that the file has, and what it holds."""
    [read] = await bank.files.run_all([partial(_read_bytes, bank, name)])
    return read


async def _read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    found = await find_name(bank, name)
    if found is None:
        info = await bank.files.read_info(name)
        raise (_build_folder_error(name) if info is not None and info.is_folder else FileNotFound(name))
    try:
        return found, await bank.files.read(found)
    except NotFound:
        raise FileNotFound(name) from None


async def write(bank: Bank, name: str, text: str, if_match: str | None = None) -> FileText:
    """Whole; with `if_match` only where the file still has that tag. Raises EtagMismatch."""
    return await bank.files.run_locked(BANK_LOCK, lambda: _write_in_turn(bank, name, text, if_match, None))


async def write_locked(
    bank: Bank, name: str, text: str, if_match: str | None = None, among: Collection[str] | None = None
) -> FileText:
    """For who holds the lock already, and may know the names of the folder's files."""
    return await wait_finished(_write_in_turn(bank, name, text, if_match, among))


async def _write_in_turn(
    bank: Bank, name: str, text: str, if_match: str | None, among: Collection[str] | None
) -> FileText:
    found = await find_name(bank, name, among)
    if if_match:
        before = None if found is None else await _read_bytes_if_present(bank, found)
        if before is None:
            raise FileNotFound(name)
        if (current := compute_etag(before)) != if_match:
            raise EtagMismatch(found or name, if_match, current)
    data = as_bytes(text)
    target = await _put_file(bank, name, found, data)
    return FileText(target, text, compute_etag(data))


async def edit(bank: Bank, changes: Mapping[str, TextChange]) -> dict[str, FileText]:
    """Changes files in their order, with nobody in between; what stays as it is, is not written.

    A change that raises, a write that fails, and a caller that is cancelled leave every file as it
    was. What is no text in UTF-8 is Refused.
    """
    edits = _FileEdits(bank, changes)
    return await bank.files.run_locked(BANK_LOCK, edits.apply, edits.undo)


async def edit_locked(bank: Bank, changes: Mapping[str, TextChange]) -> dict[str, FileText]:
    """For work that runs under the lock already."""
    return await _FileEdits(bank, changes).apply()


async def read_if_present(bank: Bank, name: str) -> str | None:
    """Of a file by its exact name."""
    data = await _read_bytes_if_present(bank, name)
    return None if data is None else as_text(data)


async def find_name(bank: Bank, name: str, among: Collection[str] | None = None) -> str | None:
    """The name under which a file is there: as given, as it is written today, or as it once was.

    `among` are the names of the folder's files, where they are known.
    """
    check_name(name)
    if among is not None:
        return find_matching(among, name)
    for candidate in list_candidates(name):
        info = await bank.files.read_info(candidate)
        if info is not None and not info.is_folder:
            _check_link(info)
            return candidate
    return find_matching(await list_file_names(bank), name)


async def list_file_names(bank: Bank) -> list[str]:
    """Of the files at the root of the bank that tools can reach."""
    try:
        seen = await bank.files.survey()
    except NotFound:
        return []
    astray = {name for name, target in seen.links.items() if is_outside_bank(target)}
    return [name for name in seen.files if name[0] != "." and name not in astray]


async def settle_name(bank: Bank, name: str) -> str:
    """The name to write under; a file that has only its old name gets the new one first."""
    return await _settle_found(bank, name, await find_name(bank, name))


def _apply_change(name: str, before: bytes | None, change: TextChange) -> str | None:
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
    if (opened := find_open_block(old)) and not find_open_block(new):
        raise Refused(
            f"{escape_name(name)} was not changed: {opened}, and the new text would end it.",
            hint="Close it where it should end, then try again.",
            filename=name,
        )


def _check_link(info: FileInfo) -> None:
    """A link must not make a file of what no name of a bank's file could reach."""
    if is_outside_bank(info.target):
        raise Refused(
            f'"{escape_name(info.name)}" is a link to "{escape_name(info.target or "")}", which '
            f"is no file "
            "of the bank.",
            hint="A link may lead to a file at the root of the bank that ends in .md or .json.",
            name=escape_name(info.name),
        )


def _build_folder_error(name: str) -> FileNotFound:
    error = FileNotFound(name)
    error.message = f'"{escape_name(name)}" is a folder, not a file.'
    return error


async def _read_bytes_if_present(bank: Bank, name: str) -> bytes | None:
    try:
        return await bank.files.read(name)
    except NotFound:
        return None


async def _settle_found(bank: Bank, name: str, found: str | None) -> str:
    if found is None:
        new = normalize_name(check_new_name(name))
        if there := await bank.files.read_info(new):
            _check_link(there)
        return new
    if found in LEGACY_NAMES.values():
        await bank.files.rename(found, normalize_name(found))
        return normalize_name(found)
    return found


async def _put_file(bank: Bank, name: str, found: str | None, data: bytes) -> str:
    """The name that it was written under; what fails leaves the old file under its old name."""
    target = await _settle_found(bank, name, found)
    try:
        await bank.files.write(target, data)
    except EverkeptError:
        if found is not None and found != target:
            await bank.files.rename(target, found)
        raise
    return target


class _FileEdits:
    """Some files that get other texts: all of them, or none.

    A canceled caller's edits are taken back: a caller that tries again would have them twice.
    """

    def __init__(self, bank: Bank, changes: Mapping[str, TextChange]) -> None:
        self._bank = bank
        self._changes = changes
        self._begun: list[tuple[_PlannedEdit, str]] = []

    async def apply(self) -> dict[str, FileText]:
        planned = [plan for name in self._changes if (plan := await self._plan(name))]
        try:
            for plan in planned:
                self._begun.append((plan, await _settle_found(self._bank, plan.name, plan.found)))
            contents = {target: as_bytes(plan.after) for plan, target in self._begun}
            await self._bank.files.write_all(contents)
        except EverkeptError as error:
            if changed := await self._restore_all():
                error.facts = {**error.facts, "changed": changed}
            raise
        return {plan.name: FileText(target, plan.after, compute_etag(contents[target])) for plan, target in self._begun}

    async def undo(self) -> None:
        await self._restore_all()

    async def _plan(self, name: str) -> _PlannedEdit | None:
        """What a file is to hold; None if it stays as it is."""
        found = await find_name(self._bank, name)
        before = None if found is None else await _read_bytes_if_present(self._bank, found)
        work = partial(_apply_change, found or name, before, self._changes[name])
        after = await run_in_thread_if_large(len(before or b""), work)
        return None if after is None else _PlannedEdit(name, found, before, after)

    async def _restore_all(self) -> list[str]:
        """The names of those that could not be put back."""
        begun, self._begun = self._begun, []
        return [target for plan, target in begun if not await _restore_file(self._bank, plan, target)]


async def _restore_file(bank: Bank, plan: _PlannedEdit, target: str) -> bool:
    """Whether the file is as it was before; a store that is in trouble may not let it be."""
    try:
        if plan.before is None or plan.found is None:
            await bank.files.remove(target)
            return True
        if await _read_bytes_if_present(bank, target) != plan.before:
            await bank.files.write(target, plan.before)
        if plan.found != target:
            await bank.files.rename(target, plan.found)
    except EverkeptError:
        return False
    return True


LARGE_TEXT_SIZE = 1_000_000  # characters or bytes; what is smaller is done before a thread would begin

T = TypeVar("T")


async def run_in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """The result of work that only computes, on a text of so many characters."""
    return await asyncio.to_thread(work) if size > LARGE_TEXT_SIZE and is_on_event_loop() else work()
