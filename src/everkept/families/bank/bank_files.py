"""Files of a bank: found under any of their names, read as text, edited under a lock."""

import asyncio
import codecs
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from everkept.core.files import FileInfo
from everkept.core.runtime import is_on_event_loop, wait_finished
from everkept.core.secrets import mask_apart, mask_text
from everkept.errors import (
    MAX_LISTED,
    EtagMismatch,
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    Refused,
    escape_name,
)
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

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_UNDECODED_BYTE = re.compile("[\udc80-\udcff]")
NOT_UTF8 = "not_utf8"


def detect_encoding(data: bytes) -> str | None:
    """Return the encoding of a byte order mark, or None for UTF-8 and no mark."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def as_utf8(data: bytes) -> bytes:
    """Return the text in UTF-8 if a byte order mark names its encoding, otherwise the bytes unchanged."""
    encoding = detect_encoding(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def as_text(data: bytes) -> str:
    """Decode bytes so that as_bytes() restores them, even if they are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def replace_undecoded(text: str) -> str:
    """Replace bytes that could not be decoded with U+FFFD."""
    return _UNDECODED_BYTE.sub("\ufffd", text)


def check_editable(name: str, data: bytes) -> None:
    """Raise Refused if an edit would damage the file. Single bytes that are not UTF-8 survive edits."""
    if reason := _find_binary_reason(data):
        raise Refused(
            f"{escape_name(name)} was not changed: {reason}, and an edit would damage it.",
            hint="Save it as UTF-8 first.",
            filename=name,
        )


def build_decoding_warning(name: str, data: bytes) -> ToolWarning | None:
    """Build a warning for readers of a file that is not plain UTF-8."""
    if reason := _find_binary_reason(data):
        return ToolWarning(NOT_UTF8, f"{escape_name(name)}: {reason}. Save it as UTF-8 before you edit it.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return ToolWarning(
            NOT_UTF8,
            f"{escape_name(name)} is not UTF-8 at byte {error.start}. Undecodable bytes appear as U+FFFD, "
            "and writing this text back would lose them.",
        )
    return None


def _find_binary_reason(data: bytes) -> str | None:
    if encoding := detect_encoding(data):
        return f"it is {encoding}, not UTF-8"
    return "it contains NUL bytes, so it is not text" if b"\0" in data else None


_LINE_END = re.compile(rb"\r\n|\r|\n")


class LineRange(Value):
    """Some lines of a file, the numbers of the first and last of them, and the file's number of lines."""

    data: bytes
    first: int
    last: int
    total: int


def decode_for_display(data: bytes) -> str:
    """Decode with U+FFFD for undecodable bytes. The byte order mark of UTF-8 stays."""
    return as_utf8(data).decode("utf-8", "replace")


def select_lines(name: str, data: bytes, start: int | None, end: int | None) -> LineRange:
    """Return the lines `start` to `end`, both included. An `end` beyond the last line is allowed."""
    ends = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
    total = ends + (not data.endswith((b"\n", b"\r")) and bool(data))
    first, last = start or 1, total if end is None else min(end, total)
    if end is not None and end < first:
        raise InvalidInput(f"`endLine` is {end}; it must be at least `startLine`, {first}.", argument="endLine")
    if first > max(total, 1):
        raise InvalidInput(
            f"`startLine` is {first}; it must be at most {max(total, 1)}, the last line of {escape_name(name)}.",
            argument="startLine",
            lines=total,
        )
    begin = _skip_lines(data, 0, first - 1)
    return LineRange(data[begin : _skip_lines(data, begin, last - first + 1)], first, last, total)


def _skip_lines(data: bytes, at: int, count: int) -> int:
    """Return the offset `count` lines after the line that begins at `at`."""
    if not count:
        return at
    found = next(islice(_LINE_END.finditer(data, at), count - 1, None), None)
    return len(data) if found is None else found.end()


def find_edit_warnings(texts: Mapping[str, str]) -> list[ToolWarning]:
    """Return warnings about bytes that are not UTF-8 and blocks that are not closed, by file."""
    found: list[ToolWarning] = []
    for name, text in texts.items():
        if warning := build_decoding_warning(name, as_bytes(text)):
            found.append(warning)
        if opened := find_open_block(text):
            message = f"{name}: {opened}, which hides the text after it in a viewer. Close it."
            found.append(ToolWarning("left_open", message))
    return found


_STRETCH_CHARACTERS = 200_000  # masked at a time


async def find_secret_warnings(texts: Mapping[str, str]) -> list[ToolWarning] | None:
    """Return a warning for each file whose text contains a secret."""
    found: list[ToolWarning] = []
    for name, text in texts.items():
        kinds: dict[str, None] = {}
        for stretch in _split_text(text):
            _, found_kinds = await mask_apart(len(stretch), partial(mask_text, stretch))
            kinds |= dict.fromkeys(found_kinds)
        if kinds:
            message = f"{name} seems to contain a secret ({', '.join(kinds)}), which was written unchanged."
            found.append(ToolWarning("secret_in_file", message))
    return found or None


def _split_text(text: str) -> Iterator[str]:
    """Yield parts of a text, cut between lines if possible."""
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

# Gets the text of a file, or None if it does not exist. Returns the new text, or None for no change.
TextChange = Callable[[str | None], str | None]


class FileText(Value):
    name: str
    text: str
    etag: str


class _PlannedEdit(Value):
    """Planned change of a file. `found` and `before` are None for a new file."""

    name: str
    found: str | None
    before: bytes | None
    after: str


def compute_etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


async def read(bank: Bank, name: str) -> FileText:
    """Read a file. Raise FileNotFound, or Refused for an invalid name."""
    found, data = await read_bytes(bank, name)
    return FileText(found, as_text(data), compute_etag(data))


async def read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    """Return the file's actual name and its content."""
    [read] = await bank.files.run_all([partial(_read_bytes, bank, name)])
    return read


async def _read_bytes(bank: Bank, name: str) -> tuple[str, bytes]:
    found = await find_name(bank, name)
    if found is None:
        error, info = FileNotFound(name), await bank.files.read_info(name)
        if info is not None and info.is_folder:
            error.message = f'"{escape_name(name)}" is a folder, not a file.'
        raise error
    try:
        return found, await bank.files.read(found)
    except NotFound:
        raise FileNotFound(name) from None


class WriteOptions(Value):
    """How to write a whole file. Without an ETag or `force`, the session must know the file's current content."""

    if_match: str | None = None  # the file must have this ETag
    force: bool = False
    undoes: int | None = None  # time of the write that this one reverses


async def write(bank: Bank, name: str, text: str, options: WriteOptions = WriteOptions()) -> FileText:  # noqa: B008
    """Write a whole file. Raise EtagMismatch if it is not the expected version."""
    return await bank.files.run_locked(BANK_LOCK, lambda: write_in_turn(bank, name, text, options, None))


async def write_locked(
    bank: Bank,
    name: str,
    text: str,
    options: WriteOptions = WriteOptions(),  # noqa: B008 (frozen)
    among: Collection[str] | None = None,
) -> FileText:
    """Write a file for a caller that holds the lock. `among` are the folder's file names, if known."""
    return await wait_finished(write_in_turn(bank, name, text, options, among))


async def write_in_turn(
    bank: Bank,
    name: str,
    text: str,
    options: WriteOptions = WriteOptions(),  # noqa: B008 (frozen)
    among: Collection[str] | None = None,
) -> FileText:
    """Write a file for work that `run_locked` runs."""
    found = await find_name(bank, name, among)
    data, history, before = as_bytes(text), bank.history, None
    if found is not None and (options.if_match or history):
        before = await _read_bytes_if_present(bank, found)
    if options.if_match:
        if before is None:
            raise FileNotFound(name)
        if (current := compute_etag(before)) != options.if_match:
            raise EtagMismatch(found or name, options.if_match, current)
    if history and found is not None and before is not None and before != data:
        if not options.if_match and not options.force:
            history.check_known(found, before)
        await history.keep({found: (before, data)}, options.undoes)
    target = await _put_file(bank, name, found, data)
    if history:
        history.note(target, data)
    return FileText(target, text, compute_etag(data))


async def edit(bank: Bank, changes: Mapping[str, TextChange]) -> dict[str, FileText]:
    """Edit files in order under the lock. Unchanged files are not written.

    If a change raises, a write fails or the caller is canceled, all files keep their old content. Raise Refused for a
    file that is not UTF-8.
    """
    edits = _FileEdits(bank, changes)
    return await bank.files.run_locked(BANK_LOCK, edits.apply, edits.undo)


async def edit_locked(bank: Bank, changes: Mapping[str, TextChange]) -> dict[str, FileText]:
    """Edit files for a caller that holds the lock."""
    return await _FileEdits(bank, changes).apply()


async def find_name(bank: Bank, name: str, among: Collection[str] | None = None) -> str | None:
    """Return the actual name of the file, in any of its forms, or None. `among` are the folder's names, if known."""
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
    """Return the names of the files at the top level of the bank that tools can reach."""
    try:
        seen = await bank.files.survey()
    except NotFound:
        return []
    astray = {name for name, target in seen.links.items() if is_outside_bank(target)}
    return [name for name in seen.files if name[0] != "." and name not in astray]


async def settle_name(bank: Bank, name: str) -> str:
    """Return the name to write to. A file with only its older name is renamed first."""
    return await _settle_found(bank, name, await find_name(bank, name))


def _apply_change(name: str, before: bytes | None, change: TextChange) -> str | None:
    """Return the new text, or None if it is unchanged."""
    if before is None:
        return change(None)
    old = as_text(before)
    try:
        new = change(old)
    except EverkeptError:
        check_editable(name, before)  # for such a file the other error would be misleading
        raise
    if new is None or new == old:
        return None
    check_editable(name, before)
    _check_still_open(name, old, new)
    return new


def _check_still_open(name: str, old: str, new: str) -> None:
    """Raise Refused if the new text would close an open block: a new fence would hide the sections between."""
    if (opened := find_open_block(old)) and not find_open_block(new):
        raise Refused(
            f"{escape_name(name)} was not changed: {opened}, and the new text would close it in the wrong place.",
            hint="Close the block where it should end, then try again.",
            filename=name,
        )


def _check_link(info: FileInfo) -> None:
    """Raise Refused for a link to a file that is not a file of the bank."""
    if is_outside_bank(info.target):
        raise Refused(
            f'"{escape_name(info.name)}" is a link to "{escape_name(info.target or "")}", '
            "which is not a file of the bank.",
            hint="Link to a .md or .json file at the top level of the bank instead.",
            name=escape_name(info.name),
        )


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
    """Write the file and return its name. If that fails, the old file keeps its old name."""
    target = await _settle_found(bank, name, found)
    try:
        await bank.files.write(target, data)
    except EverkeptError:
        if found is not None and found != target:
            await bank.files.rename(target, found)
        raise
    return target


class _FileEdits:
    """Changes of several files: all or none. A canceled caller's edits are undone, so that a retry repeats none."""

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
            if history := self._bank.history:
                olds = {target: plan.before for plan, target in self._begun if plan.before is not None}
                await history.keep({target: (old, contents[target]) for target, old in olds.items()})
            await self._bank.files.write_all(contents)
            for plan, target in self._begun:
                self._follow(target, plan.before, contents[target])
        except EverkeptError as error:
            if changed := await self._restore_all():
                error.facts = {**error.facts, "changed": changed}
            raise
        return {plan.name: FileText(target, plan.after, compute_etag(contents[target])) for plan, target in self._begun}

    async def undo(self) -> None:
        await self._restore_all()

    def _follow(self, target: str, before: bytes | None, after: bytes | None) -> None:
        """Note the own edit, so that the session's next write does not take it for someone else's."""
        if self._bank.history and before is not None and after is not None:
            self._bank.history.follow(target, before, after)

    async def _plan(self, name: str) -> _PlannedEdit | None:
        """Return the planned change of a file, or None if it is unchanged."""
        found = await find_name(self._bank, name)
        before = None if found is None else await _read_bytes_if_present(self._bank, found)
        work = partial(_apply_change, found or name, before, self._changes[name])
        after = await run_in_thread_if_large(len(before or b""), work)
        return None if after is None else _PlannedEdit(name, found, before, after)

    async def _restore_all(self) -> list[str]:
        """Restore the old files. Return the names of files that could not be restored."""
        begun, self._begun = self._begun, []
        for plan, target in begun:
            self._follow(target, as_bytes(plan.after), plan.before)
        return [target for plan, target in begun if not await _restore_file(self._bank, plan, target)]


async def _restore_file(bank: Bank, plan: _PlannedEdit, target: str) -> bool:
    """Return whether the file has its old content again. A failing store may prevent that."""
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


LARGE_TEXT_SIZE = 1_000_000  # characters or bytes; for smaller texts a thread is not worth it

T = TypeVar("T")


def format_names(names: Sequence[str], most: int = MAX_LISTED) -> str:
    """List the first names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def group_by_size(
    items: Iterable[T], get_size: Callable[[T], int], limit: int, most: int | None = None
) -> Iterator[list[T]]:
    """Yield groups of at most `most` items whose sizes add up to the limit. A larger item is a group by itself."""
    group: list[T] = []
    total = 0
    for item in items:
        size = get_size(item)
        if group and (len(group) == most or total + size > limit):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


async def run_in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run pure computation on a text of this size, in a thread if it is large."""
    return await asyncio.to_thread(work) if size > LARGE_TEXT_SIZE and is_on_event_loop() else work()
