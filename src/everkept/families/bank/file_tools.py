"""Tools for a bank's files: one or several in a call, or all core files in one result."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from everkept.core.files import FolderSurvey
from everkept.core.sessions import ToolCall
from everkept.core.times import Clock, format_iso
from everkept.errors import BankNotFound, EtagMismatch, EverkeptError, FileNotFound, InvalidInput, NotFound, escape_name
from everkept.families.bank.bank_files import (
    BANK_LOCK,
    WriteOptions,
    as_utf8,
    build_decoding_warning,
    compute_etag,
    decode_for_display,
    detect_encoding,
    find_name,
    find_secret_warnings,
    list_file_names,
    read_bytes,
    select_lines,
    write,
    write_locked,
)
from everkept.families.bank.banks import (
    NO_FOLDER,
    Bank,
    BankRecords,
    Banks,
    check_name,
    check_new_name,
    exists,
    find_matching,
    find_present,
    find_repeated,
    resolve_allowed,
)
from everkept.families.bank.core_files import find_folder_warnings, prepare_core_files
from everkept.families.bank.file_answers import (
    MAX_BATCH_FILES,
    STATELESS_ETAG_NOTICE,
    BankStatus,
    BatchCounts,
    BatchReadResult,
    BatchWriteResult,
    ContextBundle,
    ContextDigest,
    DigestRequest,
    Etag,
    FileContent,
    FileList,
    FileName,
    FileWrite,
    Force,
    GraphSummarizer,
    InitializedBank,
    MaxTokens,
    ReadResult,
    SelectedPath,
    WithEtags,
    WriteResult,
    WrittenFile,
    build_bundle,
    build_digest_answer,
    check_content,
)
from everkept.families.bank.mode_rules import write_rules
from everkept.families.bank.model import CORE_FILES, StoreId, prefix_errors
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value

SKIPPED_MESSAGE = "Skipped due to previous error"


async def read_batch(
    bank: Bank, names: Sequence[str], *, with_etags: bool
) -> tuple[dict[str, ReadResult | EverkeptError], list[ToolWarning] | None]:
    """Read several files. A file that cannot be read has an error instead of its content."""
    [read] = await bank.files.run_all([partial(_read_in_turn, bank, names, with_etags)])
    return read


async def _read_in_turn(
    bank: Bank, names: Sequence[str], with_etags: bool
) -> tuple[dict[str, ReadResult | EverkeptError], list[ToolWarning] | None]:
    there = await list_file_names(bank)
    results: dict[str, ReadResult | EverkeptError] = {}
    warnings: list[ToolWarning] = []
    for name in dict.fromkeys(names):
        try:
            found, data = await _read_file(bank, name, there)
        except EverkeptError as error:
            results[name] = error
            continue
        if bank.history:
            bank.history.note(found, data)
        results[name] = ReadResult(decode_for_display(data), compute_etag(data) if with_etags else None)
        if warning := build_decoding_warning(name, data):
            warnings.append(warning)
    return results, warnings or None


async def write_batch(
    bank: Bank, files: Sequence[FileWrite], *, stop_on_error: bool, force: bool = False
) -> dict[str, WriteResult | EverkeptError]:
    """Write files in order under one lock. Earlier files stay if one fails. Invalid or repeated names write nothing."""
    results: dict[str, WriteResult | EverkeptError] = {}
    try:
        async with bank.files.lock(BANK_LOCK):
            there = set(await list_file_names(bank))
            _check_files(files, there)
            failed = False
            for file in files:
                skipped = WriteResult(success=False, error=SKIPPED_MESSAGE)
                is_skipped = failed and stop_on_error
                result = skipped if is_skipped else await _write_file(bank, file, there, force=force)
                results[file.filename] = result
                failed = failed or isinstance(result, EverkeptError)
    except EverkeptError as error:
        # Even if the lock is lost at the end, the error lists the written files.
        if written := [name for name, result in results.items() if _is_written(result)]:
            error.facts = {**error.facts, "written": written}
        raise
    return results


def _is_written(result: WriteResult | EverkeptError) -> bool:
    return isinstance(result, WriteResult) and result.success


def _check_files(files: Sequence[FileWrite], there: set[str]) -> None:
    try:
        for file in files:
            check_name(file.filename)
            check_content(file.content, file.filename)
            if find_matching(there, file.filename) is None:
                check_new_name(file.filename)
        if pair := find_repeated(file.filename for file in files):
            first, second = map(escape_name, pair)
            same = f'"{first}" occurs twice.'
            message = same if first == second else f'"{first}" and "{second}" are the same file.'
            raise InvalidInput(message, hint="Pass each file once.", argument="files", value=pair[1])
    except EverkeptError as error:
        error.message = f"Nothing was written: {error.message}"
        raise


async def _write_file(bank: Bank, file: FileWrite, there: set[str], *, force: bool) -> WriteResult | EverkeptError:
    name = file.filename
    try:
        written = await write_locked(bank, name, file.content, WriteOptions(file.if_match_etag, force), there)
    except EverkeptError as error:
        return error
    other = written.name if written.name != name else None
    return WriteResult(success=True, etag=written.etag, filename=other)


async def _read_file(bank: Bank, name: str, there: Sequence[str]) -> tuple[str, bytes]:
    """Return the file's actual name and its content."""
    # A link that leads outside is not listed, but its name is refused.
    found = await find_name(bank, name, there) or await find_name(bank, name)
    if found is None:
        raise FileNotFound(name)
    try:
        return found, await bank.files.read(found)
    except NotFound:
        raise FileNotFound(name) from None


LANGUAGE = "en"
MAX_DIGEST_ENTRIES = 1_000


class FileTools(ToolFamily):
    """Tools for the files of a bank, and for choosing the session's bank."""

    def __init__(self, banks: Banks, records: BankRecords, clock: Clock, graph_summary: GraphSummarizer) -> None:
        self._banks = banks
        self._records = records
        self._clock = clock
        self._graph_summary = graph_summary

    @tool(Effect.REPEATABLE)
    async def initialize_memory_bank(
        self,
        call: ToolCall,
        path: Annotated[
            str, Field("Project folder, or ssh://user@host/path; default: the one the server started with", blank=False)
        ]
        | None = None,
        create_mode_rules: Annotated[
            bool,
            Field("true: also write the .mcprules-<mode> files; default false", name="createModeRules", listed=False),
        ] = False,
        create_folder: Annotated[
            bool, Field("true: create a missing project folder too; default false", name="createFolder", listed=False)
        ] = False,
    ) -> InitializedBank:
        """Create a memory bank, or add its missing core files, and make it active."""
        with prefix_errors("Failed to initialize Memory Bank"):
            address = self._banks.options.place if path is None else await resolve_allowed(self._banks, path)
            if address is None:
                raise InvalidInput("Specify `path`: the server has no default folder.", argument="path")
            bank = await self._banks.open_in_folder(address)
            if not create_folder:
                await self._require_folder(address, bank)
            prepared = await prepare_core_files(bank)
            rules = await write_rules(bank) if create_mode_rules else []
        note = self._banks.select(call, bank)
        return InitializedBank(bank.address, prepared.created, prepared.renamed, rules, note)

    @tool(Effect.SESSION_ONLY)
    async def set_memory_bank_path(
        self,
        call: ToolCall,
        path: Annotated[str, Field("Project folder; default: the one the server started with", blank=False)]
        | None = None,
    ) -> SelectedPath:
        """Switch to an existing memory bank."""
        place = self._banks.options.place
        address = place if path is None else await resolve_allowed(self._banks, path)
        bank = None if address is None else await self._banks.open_in_folder(address)
        if bank is None or not any(name.endswith(".md") for name in await list_file_names(bank)):
            error = BankNotFound(NO_FOLDER if bank is None else bank.address)
            error.message = "Memory Bank not found in the provided directory."
            raise error
        return SelectedPath(bank.address, self._banks.select(call, bank))

    @tool()
    async def get_memory_bank_status(self, call: ToolCall, store_id: StoreId | None = None) -> BankStatus:
        """Show where the memory bank is and which core files it has."""
        bank = await self._banks.require_bank(call, store_id)
        seen = await bank.files.survey(with_newest=True)
        present = find_present(seen.files, CORE_FILES)
        return BankStatus(
            bank.address,
            _list_shown_names(seen),
            present,
            [name for name in CORE_FILES if name not in present],
            len(present) == len(CORE_FILES),
            LANGUAGE,
            None if seen.newest is None else format_iso(seen.newest),
            await self._records.find_project_id(bank),
            find_folder_warnings(seen),
        )

    @tool()
    async def read_memory_bank_file(
        self,
        call: ToolCall,
        filename: FileName,
        include_etag: Annotated[
            bool, Field("true: JSON with the file's ETag; false: text only; default true", name="includeEtag")
        ] = True,
        start_line: Annotated[int, Field("First line to read", name="startLine", ge=1)] | None = None,
        end_line: Annotated[int, Field("Last line to read", name="endLine", ge=1)] | None = None,
        store_id: StoreId | None = None,
    ) -> FileContent:
        """Read a file of the memory bank, or some of its lines."""
        bank = await self._banks.require_bank(call, store_id)
        with prefix_errors("Error reading file", filename):
            name, data = await read_bytes(bank, filename)
            if bank.history:
                bank.history.note(name, data)
            part = None
            if start_line is not None or end_line is not None:
                part = select_lines(name, as_utf8(data), start_line, end_line)
        etag = compute_etag(data) if include_etag else None
        seen = data if part is None else part.data
        warning = build_decoding_warning(name, data if detect_encoding(data) else seen)
        warnings = None if warning is None else [warning]
        note = None if call.session.stateful else STATELESS_ETAG_NOTICE
        if part is None:
            return FileContent(decode_for_display(seen), etag, name, warnings=warnings, note=note)
        return FileContent(decode_for_display(seen), etag, name, part.first, part.last, part.total, warnings, note)

    @tool(Effect.DESTROYS)
    async def write_memory_bank_file(
        self,
        call: ToolCall,
        filename: FileName,
        content: Annotated[str, Field("Whole new content")],
        if_match_etag: Etag | None = None,
        force: Force = False,
        store_id: StoreId | None = None,
    ) -> WrittenFile:
        """Create or replace a file of the memory bank. Refused if others changed it since you read it."""
        bank = await self._banks.require_bank(call, store_id)
        known = (EtagMismatch, FileNotFound)
        with prefix_errors("Error writing file", filename, unless=known):
            check_content(content, filename)
            written = await write(bank, filename, content, WriteOptions(if_match_etag, force))
        return WrittenFile(
            True,
            f"File {escape_name(written.name)} successfully written to Memory Bank",
            written.name,
            written.etag,
            await self._find_secrets({written.name: content}),
        )

    @tool()
    async def list_memory_bank_files(self, call: ToolCall, store_id: StoreId | None = None) -> FileList:
        """List the files of the memory bank."""
        bank = await self._banks.require_bank(call, store_id)
        seen = await bank.files.survey()
        return FileList(_list_shown_names(seen), find_folder_warnings(seen))

    @tool()
    async def get_context_bundle(
        self,
        call: ToolCall,
        include_etags: WithEtags = True,
        max_tokens: MaxTokens | None = None,
        store_id: StoreId | None = None,
    ) -> ContextBundle:
        """Read all core files in one call, optionally cut to a token budget."""
        bank = await self._banks.require_bank(call, store_id)
        return await build_bundle(bank, self._format_now(), with_etags=include_etags, max_tokens=max_tokens)

    @tool()
    async def get_context_digest(
        self,
        call: ToolCall,
        max_progress_entries: Annotated[
            int,
            Field(
                "Maximum progress entries, default 10",
                name="maxProgressEntries",
                ge=0,
                le=MAX_DIGEST_ENTRIES,
                listed=False,
            ),
        ] = 10,
        max_decisions: Annotated[
            int, Field("Maximum decisions, default 5", name="maxDecisions", ge=0, le=MAX_DIGEST_ENTRIES, listed=False)
        ] = 5,
        include_system_patterns: Annotated[
            bool,
            Field(
                "true: add the start of system-patterns.md; default false", name="includeSystemPatterns", listed=False
            ),
        ] = False,
        max_tokens: MaxTokens | None = None,
        store_id: StoreId | None = None,
    ) -> ContextDigest:
        """Summarize open tasks, recent progress and recent decisions. Read this first."""
        bank = await self._banks.require_bank(call, store_id)
        wishes = DigestRequest(max_progress_entries, max_decisions, include_system_patterns, max_tokens)
        return await build_digest_answer(bank, self._format_now(), wishes, self._graph_summary)

    @tool()
    async def batch_read_files(
        self,
        call: ToolCall,
        files: Annotated[list[FileName], Field("Names of the files", max_items=MAX_BATCH_FILES)],
        include_etags: WithEtags = True,
        store_id: StoreId | None = None,
    ) -> BatchReadResult:
        """Read several files in one call."""
        bank = await self._banks.require_bank(call, store_id)
        if not files:
            raise _build_no_files_error()
        results, warnings = await read_batch(bank, files, with_etags=include_etags)
        failed = [isinstance(result, EverkeptError) for result in results.values()]
        shown = {n: ReadResult("", error=str(r)) if isinstance(r, EverkeptError) else r for n, r in results.items()}
        note = None if call.session.stateful else STATELESS_ETAG_NOTICE
        answer = BatchReadResult(shown, self._count_results(failed), warnings, note)
        if all(failed):
            raise _build_batch_error("read", results, answer)
        return answer

    @tool(Effect.DESTROYS)
    async def batch_write_files(
        self,
        call: ToolCall,
        files: Annotated[list[FileWrite], Field("Files in the order to write them", max_items=MAX_BATCH_FILES)],
        stop_on_error: Annotated[
            bool, Field("true: skip the rest after the first failure; default false", name="stopOnError", listed=False)
        ] = False,
        force: Force = False,
        store_id: StoreId | None = None,
    ) -> BatchWriteResult:
        """Write several files in order. Returns which ones were written."""
        bank = await self._banks.require_bank(call, store_id)
        if not files:
            raise _build_no_files_error()
        results = await write_batch(bank, files, stop_on_error=stop_on_error, force=force)
        failed = [not _is_written(result) for result in results.values()]
        shown = {
            name: WriteResult(success=False, error=str(result)) if isinstance(result, EverkeptError) else result
            for name, result in results.items()
        }
        written = {f.filename: f.content for f in files if shown[f.filename].success}
        answer = BatchWriteResult(shown, self._count_results(failed), await self._find_secrets(written))
        if all(failed):
            raise _build_batch_error("written", results, answer)
        return answer

    async def _require_folder(self, address: str, bank: Bank) -> None:
        """Raise NotFound if neither the folder nor the bank's parent folder exists: the path may be mistyped."""
        place = await self._banks.open_at(address)
        if not await exists(place) and await bank.home.read_info() is None:
            raise NotFound(
                "path",
                address,
                message=f"Folder does not exist: {place.address}. Nothing was created.",
                hint="Check the path, or pass createFolder=true to create the folder.",
            )

    async def _find_secrets(self, texts: Mapping[str, str]) -> list[ToolWarning] | None:
        return await find_secret_warnings(texts) if self._banks.options.mask_secrets else None

    def _count_results(self, failed: Sequence[bool]) -> BatchCounts:
        return BatchCounts(len(failed), len(failed) - sum(failed), sum(failed), self._format_now())

    def _format_now(self) -> str:
        return format_iso(self._clock())


def _list_shown_names(seen: FolderSurvey) -> list[str]:
    return sorted(name for name in (*seen.files, *seen.folders) if name[0] != ".")


def _build_batch_error(done: str, results: Mapping[str, object], answer: Value) -> EverkeptError:
    """Return the first error of a batch in which every file failed."""
    name, first = next((name, result) for name, result in results.items() if isinstance(result, EverkeptError))
    first.message = f"No file was {done}. {escape_name(name)}: {first.message}"
    first.facts = {**first.facts, **to_json(answer)}
    return first


def _build_no_files_error() -> InvalidInput:
    return InvalidInput("Files array is required.", hint="Pass at least one file.", argument="files", value="[]")
