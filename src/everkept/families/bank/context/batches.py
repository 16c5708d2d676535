"""Many files of a bank in one go, each with its own outcome."""

from collections.abc import Sequence
from functools import partial

from everkept.errors import EverkeptError, FileNotFound, InvalidInput, NotFound, visible
from everkept.families.bank.banks import Bank
from everkept.families.bank.context.file_model import (
    FileWrite,
    ReadResult,
    WriteResult,
    checked_content,
)
from everkept.families.bank.files.bank_files import (
    LOCK,
    etag_of,
    file_names,
    found_name,
    write_locked,
)
from everkept.families.bank.files.names import checked_name, checked_new_name, matching, repeated
from everkept.families.bank.text.encodings import decoding_warning
from everkept.families.bank.text.showing import shown
from everkept.tools.tool import Warned

SKIPPED = "Skipped due to previous error"


async def read_batch(
    bank: Bank, names: Sequence[str], *, with_etags: bool
) -> tuple[dict[str, ReadResult], list[Warned] | None]:
    """A file that cannot be read has an error in its place."""
    [read] = await bank.files.run_all([partial(_read_in_turn, bank, names, with_etags)])
    return read


async def _read_in_turn(
    bank: Bank, names: Sequence[str], with_etags: bool
) -> tuple[dict[str, ReadResult], list[Warned] | None]:
    there = await file_names(bank)
    results: dict[str, ReadResult] = {}
    warnings: list[Warned] = []
    for name in dict.fromkeys(names):
        try:
            data = await _read(bank, name, there)
        except EverkeptError as error:
            results[name] = ReadResult("", error=str(error))
            continue
        results[name] = ReadResult(shown(data), etag_of(data) if with_etags else None)
        if warning := decoding_warning(name, data):
            warnings.append(warning)
    return results, warnings or None


async def write_batch(
    bank: Bank, files: Sequence[FileWrite], *, stop_on_error: bool
) -> dict[str, WriteResult]:
    """In their order and with nobody in between; what is written stays when a later one fails.

    A name that is not allowed, or one that stands there twice, fails before anything is written.
    """
    results: dict[str, WriteResult] = {}
    try:
        async with bank.files.lock(LOCK):
            there = set(await file_names(bank))
            _check(files, there)
            failed = False
            for file in files:
                skipped = WriteResult(success=False, error=SKIPPED)
                is_skipped = failed and stop_on_error
                result = skipped if is_skipped else await _written(bank, file, there)
                results[file.filename] = result
                failed = failed or not result.success
    except EverkeptError as error:
        # Even when the lock is lost on the way out, it is known what was written.
        if written := [name for name, result in results.items() if result.success]:
            error.facts = {**error.facts, "written": written}
        raise
    return results


def _check(files: Sequence[FileWrite], there: set[str]) -> None:
    try:
        for file in files:
            checked_name(file.filename)
            checked_content(file.content, file.filename)
            if matching(there, file.filename) is None:
                checked_new_name(file.filename)
        _check_once(files)
    except EverkeptError as error:
        error.message = f"Nothing was written: {error.message}"
        raise


def _check_once(files: Sequence[FileWrite]) -> None:
    if pair := repeated(file.filename for file in files):
        first, second = pair
        raise InvalidInput(
            f'"{visible(first)}" and "{visible(second)}" are one file.'
            if first != second
            else f'"{visible(first)}" is there twice.',
            hint="Give each file once.",
            argument="files",
            value=second,
        )


async def _written(bank: Bank, file: FileWrite, there: set[str]) -> WriteResult:
    name = file.filename
    try:
        written = await write_locked(bank, name, file.content, file.if_match_etag, there)
    except EverkeptError as error:
        return WriteResult(success=False, error=str(error))
    other = written.name if written.name != name else None
    return WriteResult(success=True, etag=written.etag, filename=other)


async def _read(bank: Bank, name: str, there: Sequence[str]) -> bytes:
    found = await found_name(bank, name, there)
    if found is None:
        raise FileNotFound(name)
    try:
        return await bank.files.read(found)
    except NotFound:
        raise FileNotFound(name) from None
