"""The folder `memories` of a bank, by the six commands of Anthropic's memory tool, in the words that its models know.

The files may have any name, also in subfolders. Paths begin with `/memories`, as the models expect.
"""

import posixpath
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from everkept.core.files import FileInfo, FileStore, parse_path
from everkept.core.sessions import ToolCall
from everkept.errors import NO_FOLDER, BankNotFound, Conflict, InvalidInput, NotFound, ReadOnly, Refused
from everkept.families.bank.bank_files import BANK_LOCK, as_bytes, as_text, check_editable, decode_for_display
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.file_answers import check_content

ROOT = "/memories"
FOLDER = "memories"  # inside the bank
MAX_LINES = 999_999
MAX_DEPTH = 2  # of a listed folder
CONTEXT_LINES = 2  # around an edit
_NUMBER_WIDTH = 6
_UNITS = ("B", "K", "M", "G")
_LISTING = "Here're the files and directories up to 2 levels deep in {}, excluding hidden items:"
_CONTENT = "Here's the content of {} with line numbers:"
_MISSING = "The path {} does not exist. Please provide a valid path."
_SNIPPET = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"

_Change = Callable[[Bank], Coroutine[Any, Any, str]]


class MemoryFiles:
    """The memory files of the bank of a call. A result is the text for the model, and so is the message of an error."""

    def __init__(self, banks: Banks) -> None:
        self._banks = banks

    async def view(self, call: ToolCall, path: str, view_range: Sequence[int] | None = None) -> str:
        """Return a folder's files or a file's numbered lines, of which `view_range` has the first and the last."""
        place, files = _parse(path), (await self._open(call)).files

        async def read() -> tuple[FileInfo | None, str]:
            info = await files.read_info(place)
            if place == FOLDER and info is None:
                return None, "\n".join((_LISTING.format(path), f"0B\t{path}"))
            if info is None:
                raise _Missing(path, _MISSING.format(path))
            if info.is_folder:
                size, lines = await _list_files(files, place, path.rstrip("/"), 1)
                return info, "\n".join((_LISTING.format(path), f"{_format_size(size)}\t{path}", *lines))
            return info, decode_for_display(await files.read(place))

        [(info, text)] = await files.run_all([read])
        if info is None or info.is_folder:
            return text
        lines = text.split("\n")
        if len(lines) > MAX_LINES:
            raise _Denied(f"File {path} exceeds maximum line limit of 999,999 lines.")
        first, last = 1, len(lines)
        if view_range is not None and len(view_range) == 2:
            first, last = max(view_range[0], 1), len(lines) if view_range[1] == -1 else view_range[1]
        return f"{_CONTENT.format(path)}\n" + "\n".join(_number(lines, first, last))

    async def create(self, call: ToolCall, path: str, file_text: str) -> str:
        """Create a file. Raise Conflict if the path exists."""
        place, data = _parse(path), _encode(path, file_text)

        async def write(bank: Bank) -> str:
            files = bank.files
            if place == FOLDER or await files.read_info(place) is not None:
                raise _Exists(f"File {path} already exists", path=path)
            await files.write(place, data)
            return f"File created successfully at: {path}"

        return await self._change(call, write)

    async def str_replace(self, call: ToolCall, path: str, old_str: str, new_str: str) -> str:
        """Replace the only occurrence of a text."""
        place = _parse(path)

        async def replace(bank: Bank) -> str:
            text = await _read_text(bank.files, path, place)
            found = [*_find_all(text, old_str)]
            if not found:
                told = f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
                raise _MemoryInput(told, path=path)
            lines = [text.count("\n", 0, at) for at in found]
            if len(found) > 1:
                shown = ", ".join(str(line + 1) for line in lines)
                told = f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {shown}."
                raise _MemoryInput(f"{told} Please ensure it is unique", path=path)
            text = text[: found[0]] + new_str + text[found[0] + len(old_str) :]
            await _write(bank, place, _encode(path, text))
            first = max(lines[0] + 1 - CONTEXT_LINES, 1)
            return "\n".join((_SNIPPET, *_number(text.split("\n"), first, lines[0] + 1 + CONTEXT_LINES)))

        return await self._change(call, replace)

    async def insert(self, call: ToolCall, path: str, insert_line: int, insert_text: str) -> str:
        """Insert lines after a line; 0 is the top."""
        place = _parse(path)

        async def add(bank: Bank) -> str:
            lines = (await _read_text(bank.files, path, place)).split("\n")
            if not lines[-1]:
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                told = f"Invalid `insert_line` parameter: {insert_line}."
                raise _MemoryInput(f"{told} It should be within the range [0, {len(lines)}].", path=path)
            lines.insert(insert_line, insert_text.rstrip("\n"))
            await _write(bank, place, _encode(path, "\n".join(lines).removesuffix("\n") + "\n"))
            return f"The file {path} has been edited."

        return await self._change(call, add)

    async def delete(self, call: ToolCall, path: str) -> str:
        """Delete a file or a folder with its files."""
        place = _parse(path)

        async def remove(bank: Bank) -> str:
            if place == FOLDER:
                raise _Denied(f"Cannot delete the {ROOT} directory itself")
            if await bank.files.read_info(place) is None:
                raise _Missing(path, f"The path {path} does not exist")
            await _remove(bank, place)
            return f"Successfully deleted {path}"

        return await self._change(call, remove)

    async def rename(self, call: ToolCall, old_path: str, new_path: str) -> str:
        """Rename or move a file or folder. Raise Conflict if the new path exists."""
        place, target = _parse(old_path), _parse(new_path)

        async def move(bank: Bank) -> str:
            files = bank.files
            if place == FOLDER:
                raise _Denied(f"Cannot rename the {ROOT} directory itself")
            if target == FOLDER or await files.read_info(target) is not None:
                raise _Exists(f"The destination {new_path} already exists", path=new_path)
            if await files.read_info(place) is None:
                raise _Missing(old_path, f"The path {old_path} does not exist")
            if target.startswith(f"{place}/"):
                raise _MemoryInput(f"Cannot move {old_path} into itself", path=new_path)
            await files.rename(place, target)
            return f"Successfully renamed {old_path} to {new_path}"

        return await self._change(call, move)

    async def clear(self, call: ToolCall) -> str:
        """Delete all memory files."""

        async def remove(bank: Bank) -> str:
            await _remove(bank, FOLDER)
            return "All memory cleared"

        return await self._change(call, remove)

    async def _open(self, call: ToolCall) -> Bank:
        bank = await self._banks.find_bank(call)
        if bank is None:
            raise BankNotFound(NO_FOLDER)
        return self._banks.attach_history(bank, call)

    async def _change(self, call: ToolCall, work: _Change) -> str:
        if self._banks.options.read_only:
            raise ReadOnly("The memory files are read-only.", hint="Restart the server without --read-only.")
        bank = await self._open(call)
        return await bank.files.run_locked(BANK_LOCK, lambda: work(bank))


# Errors in the words of the memory tool, which have no hints.
class _MemoryInput(InvalidInput): ...


class _Exists(Conflict): ...


class _Denied(Refused): ...


class _Missing(NotFound):
    def __init__(self, path: str, message: str) -> None:
        super().__init__("file", path, message=message)


def _parse(path: str) -> str:
    """Return the path inside the bank."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise _MemoryInput(f"Path must start with {ROOT}, got: {path}", path=path)
    plain = posixpath.normpath(path)
    if plain != ROOT and not plain.startswith(f"{ROOT}/"):
        raise _MemoryInput(f"Path {path} would escape {ROOT} directory", path=path)
    try:
        return "/".join(parse_path(plain[1:]))
    except Refused as error:
        error.hint = "Use letters, digits, '-', '_' and '.' in names."
        raise


async def _write(bank: Bank, place: str, data: bytes) -> None:
    """Write a file that exists, and keep its old content, so that the user can undo it."""
    if bank.history:
        await bank.history.keep({place: (await bank.files.read(place), data)})
    await bank.files.write(place, data)


async def _remove(bank: Bank, place: str) -> None:
    """Remove a file or folder, and keep the content of its files, so that the user can undo it."""
    if bank.history:
        found = [info.path for info in await _list_all(bank.files, place)]
        await bank.history.keep({path: (await bank.files.read(path), b"") for path in found})
    await bank.files.remove(place)


async def _list_all(files: FileStore, place: str) -> list[FileInfo]:
    """Return all files at a path, also in folders, without those behind links."""
    info = await files.read_info(place)
    if info is None or info.target is not None:
        return []
    if not info.is_folder:
        return [info]
    return [each for entry in await files.list(place) for each in await _list_all(files, entry.path)]


async def _read_text(files: FileStore, path: str, place: str) -> str:
    info = await files.read_info(place)
    if info is None:
        raise _Missing(path, _MISSING.format(path))
    if info.is_folder:
        raise _MemoryInput(f"The path {path} is not a file.", path=path)
    data = await files.read(place)
    check_editable(path, data)
    return as_text(data)


def _encode(path: str, text: str) -> bytes:
    check_content(text, path)
    try:
        data = as_bytes(text)
    except UnicodeEncodeError as error:
        raise _MemoryInput(f"The text for {path} is not valid Unicode", path=path) from error
    check_editable(path, data)
    return data


async def _list_files(files: FileStore, place: str, shown: str, depth: int) -> tuple[int, list[str]]:
    """Return the size of all files in a folder, and a line for each entry that the listing has."""
    total, lines = 0, list[str]()
    for info in await files.list(place):
        if info.name.startswith("."):
            continue
        entry, size, below = f"{shown}/{info.name}", info.size, list[str]()
        if info.is_folder:
            entry += "/"
            if info.target is None:  # a link may lead to a folder above it
                size, below = await _list_files(files, info.path, entry[:-1], depth + 1)
        lines += [f"{_format_size(size)}\t{entry}", *(below if depth < MAX_DEPTH else ())]
        total += size
    return total, lines


def _format_size(size: int) -> str:
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{round(size / 1024**unit, 1):.1f}".removesuffix(".0") + _UNITS[unit]


def _number(lines: Sequence[str], first: int, last: int) -> Iterator[str]:
    for number, line in enumerate(lines[first - 1 : max(last, 0)], start=first):
        yield f"{number:>{_NUMBER_WIDTH}}\t{line}"


def _find_all(text: str, part: str) -> Iterator[int]:
    at = text.find(part) if part else -1
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))
