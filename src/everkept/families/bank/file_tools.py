"""The tools for a bank's files: one file or many in a call, or all core files in one answer."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated

from everkept.core.files import FolderSurvey
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import (
    BankNotFound,
    EtagMismatch,
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    visible,
)
from everkept.families.bank.bank_files import (
    LOCK,
    as_utf8,
    decoding_warning,
    etag_of,
    file_names,
    found_name,
    marked_encoding,
    picked,
    read_bytes,
    scan_warnings,
    shown,
    write,
    write_locked,
)
from everkept.families.bank.banks import (
    NOWHERE,
    Bank,
    BankRecords,
    Banks,
    checked_name,
    checked_new_name,
    find_present,
    matching,
    reached,
    repeated,
)
from everkept.families.bank.core_files import folder_warnings, prepare
from everkept.families.bank.file_answers import (
    BATCH_LIMIT,
    BankStatus,
    BatchCounts,
    BatchRead,
    BatchWritten,
    ContextBundle,
    ContextDigest,
    DigestWishes,
    Etag,
    FileContent,
    FileList,
    FileName,
    FileWrite,
    FileWritten,
    GraphSummary,
    Initialized,
    MaxTokens,
    PathSet,
    ReadResult,
    WithEtags,
    WriteResult,
    bundle_of,
    checked_content,
    digest_in_short,
)
from everkept.families.bank.mode_rules import write_rules
from everkept.families.bank.model import CORE_FILES, StoreId, attempting
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool

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


LANGUAGE = "en"
MOST_ENTRIES = 1_000  # of progress and decisions in a digest


class FileTools(Family):
    """One bank of markdown files, and which one a session means."""

    def __init__(
        self, banks: Banks, records: BankRecords, clock: Clock, graph_summary: GraphSummary
    ) -> None:
        self._banks = banks
        self._records = records
        self._clock = clock
        self._graph_summary = graph_summary

    @tool(Effect.REPEATABLE)
    async def initialize_memory_bank(
        self,
        call: Call,
        path: Annotated[
            str, Field("Project folder, or ssh://user@host/path; the bank lies in it.", blank=False)
        ],
        create_mode_rules: Annotated[
            bool, Field("Also write the .mcprules-<mode> files.", name="createModeRules")
        ] = False,
    ) -> Initialized:
        """Create a memory bank, or what is missing of it, and make it the active one."""
        with attempting("Failed to initialize Memory Bank"):
            bank = await self._banks.in_folder(await reached(self._banks, path))
            prepared = await prepare(bank)
            rules = await write_rules(bank) if create_mode_rules else []
        note = self._banks.select(call, bank)
        return Initialized(bank.address, prepared.created, prepared.renamed, rules, note)

    @tool(Effect.SELECTS)
    async def set_memory_bank_path(
        self,
        call: Call,
        path: Annotated[str, Field("Project folder; default that of the start.", blank=False)]
        | None = None,
    ) -> PathSet:
        """Make an existing memory bank the active one."""
        place = self._banks.options.place
        address = place if path is None else await reached(self._banks, path)
        bank = None if address is None else await self._banks.in_folder(address)
        if bank is None or not any(name.endswith(".md") for name in await file_names(bank)):
            error = BankNotFound(NOWHERE if bank is None else bank.address)
            error.message = "Memory Bank not found in the provided directory."
            raise error
        return PathSet(bank.address, self._banks.select(call, bank))

    @tool()
    async def get_memory_bank_status(
        self, call: Call, store_id: StoreId | None = None
    ) -> BankStatus:
        """Show where the memory bank is and which core files it has."""
        bank = await self._banks.existing(call, store_id)
        seen = await bank.files.survey(with_newest=True)
        present = find_present(seen.files, CORE_FILES)
        return BankStatus(
            bank.address,
            _shown_names(seen),
            present,
            [name for name in CORE_FILES if name not in present],
            len(present) == len(CORE_FILES),
            LANGUAGE,
            None if seen.newest is None else iso(seen.newest),
            await self._records.project_id(bank),
            folder_warnings(seen),
        )

    @tool()
    async def read_memory_bank_file(
        self,
        call: Call,
        filename: FileName,
        include_etag: Annotated[
            bool, Field("JSON with the ETag; false: the bare text.", name="includeEtag")
        ] = True,
        start_line: Annotated[int, Field("First line to read.", name="startLine", ge=1)]
        | None = None,
        end_line: Annotated[int, Field("Last line to read.", name="endLine", ge=1)] | None = None,
        store_id: StoreId | None = None,
    ) -> FileContent:
        """Read a file of the memory bank."""
        bank = await self._banks.existing(call, store_id)
        with attempting("Error reading file", filename):
            name, data = await read_bytes(bank, filename)
            part = None
            if start_line is not None or end_line is not None:
                part = picked(name, as_utf8(data), start_line, end_line)
        etag = etag_of(data) if include_etag else None
        seen = data if part is None else part.data
        warning = decoding_warning(name, data if marked_encoding(data) else seen)
        warnings = None if warning is None else [warning]
        if part is None:
            return FileContent(shown(seen), etag, name, warnings=warnings)
        return FileContent(shown(seen), etag, name, part.first, part.last, part.total, warnings)

    @tool(Effect.DESTROYS)
    async def write_memory_bank_file(
        self,
        call: Call,
        filename: FileName,
        content: Annotated[str, Field("The whole new content.")],
        if_match_etag: Etag | None = None,
        store_id: StoreId | None = None,
    ) -> FileWritten:
        """Create or replace a file of the memory bank."""
        bank = await self._banks.existing(call, store_id)
        known = (EtagMismatch, FileNotFound)
        with attempting("Error writing file", filename, unless=known):
            checked_content(content, filename)
            written = await write(bank, filename, content, if_match_etag)
        return FileWritten(
            True,
            f"File {visible(written.name)} successfully written to Memory Bank",
            written.name,
            written.etag,
            await self._secrets({written.name: content}),
        )

    @tool()
    async def list_memory_bank_files(self, call: Call, store_id: StoreId | None = None) -> FileList:
        """List what is in the memory bank's folder."""
        bank = await self._banks.existing(call, store_id)
        seen = await bank.files.survey()
        return FileList(_shown_names(seen), folder_warnings(seen))

    @tool()
    async def get_context_bundle(
        self,
        call: Call,
        include_etags: WithEtags = True,
        max_tokens: MaxTokens | None = None,
        store_id: StoreId | None = None,
    ) -> ContextBundle:
        """Read all core files at once, cut to a token budget if one is given."""
        bank = await self._banks.existing(call, store_id)
        return await bundle_of(bank, self._now(), with_etags=include_etags, max_tokens=max_tokens)

    @tool()
    async def get_context_digest(
        self,
        call: Call,
        max_progress_entries: Annotated[
            int, Field("Progress entries.", name="maxProgressEntries", ge=0, le=MOST_ENTRIES)
        ] = 10,
        max_decisions: Annotated[
            int, Field("Decisions.", name="maxDecisions", ge=0, le=MOST_ENTRIES)
        ] = 5,
        include_system_patterns: Annotated[
            bool, Field("Add the start of system-patterns.md.", name="includeSystemPatterns")
        ] = False,
        max_tokens: MaxTokens | None = None,
        store_id: StoreId | None = None,
    ) -> ContextDigest:
        """Sum up what is open, what happened and what was decided last, newest first."""
        bank = await self._banks.existing(call, store_id)
        wishes = DigestWishes(
            max_progress_entries, max_decisions, include_system_patterns, max_tokens
        )
        return await digest_in_short(bank, self._now(), wishes, self._graph_summary)

    @tool()
    async def batch_read_files(
        self,
        call: Call,
        files: Annotated[list[FileName], Field("File names.", max_items=BATCH_LIMIT)],
        include_etags: WithEtags = True,
        store_id: StoreId | None = None,
    ) -> BatchRead:
        """Read several files at once."""
        bank = await self._banks.existing(call, store_id)
        if not files:
            raise _no_files()
        results, warnings = await read_batch(bank, files, with_etags=include_etags)
        failed = [result.error is not None for result in results.values()]
        return BatchRead(results, self._counts(failed), warnings)

    @tool(Effect.DESTROYS)
    async def batch_write_files(
        self,
        call: Call,
        files: Annotated[list[FileWrite], Field("Files to write.", max_items=BATCH_LIMIT)],
        stop_on_error: Annotated[
            bool, Field("Skip the rest after the first failure.", name="stopOnError")
        ] = False,
        store_id: StoreId | None = None,
    ) -> BatchWritten:
        """Write several files in their order; the answer says which were written."""
        bank = await self._banks.existing(call, store_id)
        if not files:
            raise _no_files()
        results = await write_batch(bank, files, stop_on_error=stop_on_error)
        failed = [not result.success for result in results.values()]
        written = {f.filename: f.content for f in files if results[f.filename].success}
        return BatchWritten(results, self._counts(failed), await self._secrets(written))

    async def _secrets(self, texts: Mapping[str, str]) -> list[Warned] | None:
        return await scan_warnings(texts) if self._banks.options.mask_secrets else None

    def _counts(self, failed: Iterable[bool]) -> BatchCounts:
        outcomes = list(failed)
        count = sum(outcomes)
        return BatchCounts(len(outcomes), len(outcomes) - count, count, self._now())

    def _now(self) -> str:
        return iso(self._clock())


def _shown_names(seen: FolderSurvey) -> list[str]:
    return sorted(name for name in (*seen.files, *seen.folders) if name[0] != ".")


def _no_files() -> InvalidInput:
    return InvalidInput("Files array is required", argument="files", value="[]")
