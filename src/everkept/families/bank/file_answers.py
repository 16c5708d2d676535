"""Arguments and results of the tools for a bank's files, and the core files in one result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated

from everkept.core.text import format_count
from everkept.errors import EverkeptError, FileNotFound, InvalidInput, NotFound, escape_name
from everkept.families.bank.bank_files import (
    build_decoding_warning,
    compute_etag,
    decode_for_display,
    read_bytes,
    run_in_thread_if_large,
)
from everkept.families.bank.banks import Bank
from everkept.families.bank.context_budget import FILES_BY_USE, FittedFiles, fit_digest, fit_files
from everkept.families.bank.core_files import Digest, build_digest, limit_digest
from everkept.families.bank.model import CORE_FILES
from everkept.tools.schema import Field
from everkept.tools.tool import ToolWarning
from everkept.values import Value

MAX_CONTENT_BYTES = 64 * 1024 * 1024  # of one file
MAX_BATCH_FILES = 1_000  # in one call

FileName = Annotated[
    str, Field("Name at the top level of the bank, ending in .md or .json", max_length=1_000, blank=False)
]
Etag = Annotated[str, Field("Write only if the file still has this ETag", name="ifMatchEtag", max_length=1_000)]
MaxTokens = Annotated[int, Field("Size limit of the answer in context tokens", name="maxTokens", ge=1)]
WithEtags = Annotated[bool, Field("false: omit the files' ETags; default true", name="includeEtags", listed=False)]


Force = Annotated[
    bool, Field("true: overwrite a file that others changed since you read it; default false", listed=False)
]
STATELESS_ETAG_NOTICE = (
    "This connection is stateless. Pass the ETag as ifMatchEtag when you write; "
    "otherwise the write overwrites changes by others."
)


class FileWrite(Value):
    filename: Annotated[str, Field("File name", max_length=1_000)]
    content: Annotated[str, Field("Whole new content")]
    if_match_etag: (
        Annotated[str, Field("Write only if the file still has this ETag", name="ifMatchEtag", max_length=1_000)] | None
    ) = None


class InitializedBank(Value):
    """Result of initialize_memory_bank. `note` says how to reach the bank over a stateless connection."""

    path: str
    created: list[str]
    migrated: list[str]
    mode_rules: Annotated[list[str], Field(name="modeRules")]
    note: str | None = None

    @property
    def sentence(self) -> str:
        return f"Memory Bank initialized at {self.path}" + (f". {self.note}" if self.note else "")


class SelectedPath(Value):
    path: str
    note: str | None = None

    @property
    def sentence(self) -> str:
        if self.note:
            return f"Found a memory bank at {self.path}. {self.note}"
        return f"Memory Bank path set to {self.path}"


class BankStatus(Value):
    """State of a bank. `projectId` is the project that contains the bank's graph."""

    path: str
    files: list[str]
    core_files_present: Annotated[list[str], Field(name="coreFilesPresent")]
    missing_core_files: Annotated[list[str], Field(name="missingCoreFiles")]
    is_complete: Annotated[bool, Field(name="isComplete")]
    language: str
    last_updated: Annotated[str, Field(name="lastUpdated")] | None = None
    project_id: Annotated[str, Field(name="projectId")] | None = None
    warnings: list[ToolWarning] | None = None


class FileList(Value):
    files: list[str]
    warnings: list[ToolWarning] | None = None

    @property
    def sentence(self) -> str:
        listed = "\n".join(["Files in Memory Bank:", *self.files])
        warned = [f"Warning: {warning.message}" for warning in self.warnings or ()]
        return "\n\n".join([listed, *warned])


class FileContent(Value):
    """Content of a file. Without an ETag, the text of the result is only the content."""

    content: str
    etag: str | None
    filename: str
    start_line: Annotated[int, Field(name="startLine")] | None = None
    end_line: Annotated[int, Field(name="endLine")] | None = None
    total_lines: Annotated[int, Field(name="totalLines")] | None = None
    warnings: list[ToolWarning] | None = None
    note: str | None = None  # over a stateless connection

    @property
    def sentence(self) -> str | None:
        return self.content if self.etag is None else None


class WrittenFile(Value):
    success: bool
    message: str
    filename: str
    etag: str
    warnings: list[ToolWarning] | None = None


class BatchCounts(Value):
    requested: int
    successful: int
    failed: int
    timestamp: str


class ReadResult(Value):
    content: str
    etag: str | None = None
    error: str | None = None


class BatchReadResult(Value):
    results: dict[str, ReadResult]
    metadata: BatchCounts
    warnings: list[ToolWarning] | None = None
    note: str | None = None  # over a stateless connection


class WriteResult(Value):
    """Result for one file. `filename` is set if it differs from the requested name."""

    success: bool
    etag: str | None = None
    filename: str | None = None
    error: str | None = None


class BatchWriteResult(Value):
    results: dict[str, WriteResult]
    metadata: BatchCounts
    warnings: list[ToolWarning] | None = None


class BundledFile(Value):
    """A core file. A file that is cut has no ETag, because writing it back would lose the rest."""

    content: str
    etag: str | None = None


class BundleMetadata(Value):
    timestamp: str
    files_loaded: Annotated[int, Field(name="filesLoaded")]
    total_files: Annotated[int, Field(name="totalFiles")]
    memory_bank_dir: Annotated[str, Field(name="memoryBankDir")]
    warnings: list[str]


class ContextBundle(Value):
    bundle: dict[str, BundledFile]
    metadata: BundleMetadata


class DigestMetadata(Value):
    timestamp: str
    memory_bank_dir: Annotated[str, Field(name="memoryBankDir")]
    warnings: list[str] | None = None


class ContextDigest(Value):
    digest: Digest
    metadata: DigestMetadata


def check_content(content: str, filename: str) -> str:
    """Return the content. Raise InvalidInput if it is too long."""
    # A character has at most four bytes, so short texts are not counted.
    if len(content) * 4 > MAX_CONTENT_BYTES and (size := len(content.encode())) > MAX_CONTENT_BYTES:
        raise InvalidInput(
            f"The content of {escape_name(filename)} has {format_count(size, 'byte')}; "
            f"it must have at most {MAX_CONTENT_BYTES:,}.",
            hint="Split it into several files.",
            argument="content",
            limit=MAX_CONTENT_BYTES,
        )
    return content


GraphSummarizer = Callable[[Bank], Awaitable[str | None]]


class DigestRequest(Value):
    most_progress: int
    most_decisions: int
    with_patterns: bool
    max_tokens: int | None


class _CoreTexts(Value):
    """The readable core files, and a warning about each of the others."""

    texts: Mapping[str, str]
    data: Mapping[str, bytes]
    etags: Mapping[str, str]
    warnings: Sequence[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.texts.values()))


async def build_bundle(bank: Bank, timestamp: str, *, with_etags: bool, max_tokens: int | None) -> ContextBundle:
    core = await _read_core(bank)
    if not core.texts:
        raise NotFound(
            "file",
            bank.address,
            message=f"No Memory Bank files found. Errors: {'; '.join(core.warnings)}",
            hint="Use initialize_memory_bank to create missing core files.",
        )

    def build(fitted: FittedFiles) -> ContextBundle:
        if bank.history:
            for name in fitted.texts:
                if name in core.data and name not in fitted.cut:
                    bank.history.note(name, core.data[name])
        etags = {name: core.etags[name] for name in fitted.texts if name not in fitted.cut}
        return ContextBundle(
            {name: BundledFile(text, etags.get(name) if with_etags else None) for name, text in fitted.texts.items()},
            BundleMetadata(
                timestamp, len(fitted.texts), len(CORE_FILES), bank.address, [*core.warnings, *fitted.warnings]
            ),
        )

    if max_tokens is None:
        return build(FittedFiles(core.texts, frozenset(), []))
    return build(await run_in_thread_if_large(core.size, lambda: fit_files(core.texts, build, max_tokens)))


async def build_digest_answer(
    bank: Bank, timestamp: str, wishes: DigestRequest, graph_summary: GraphSummarizer
) -> ContextDigest:
    core = await _read_core(bank)
    summary, warnings = await _summarize_graph(bank, graph_summary)
    whole = partial(
        build_digest,
        core.texts,
        most_progress=wishes.most_progress,
        most_decisions=wishes.most_decisions,
        with_patterns=wishes.with_patterns,
        graph_summary=summary,
    )
    full, more = limit_digest(await run_in_thread_if_large(core.size, whole))

    def build(digest: Digest, left_out: Sequence[str]) -> ContextDigest:
        said = [*core.warnings, *warnings, *more, *left_out]
        return ContextDigest(digest, DigestMetadata(timestamp, bank.address, said or None))

    if wishes.max_tokens is None:
        return build(full, [])
    return build(*fit_digest(full, build, wishes.max_tokens))


async def _read_core(bank: Bank) -> _CoreTexts:
    read = await bank.files.run_all([partial(_try_read, bank, name) for name in FILES_BY_USE])
    texts: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    etags: dict[str, str] = {}
    warnings: list[str] = []
    for name, data in zip(FILES_BY_USE, read, strict=True):
        if isinstance(data, EverkeptError):
            missing = isinstance(data, FileNotFound)
            warnings.append(f"{name} is missing." if missing else f"{name}: {data}")
            continue
        texts[name], contents[name], etags[name] = decode_for_display(data), data, compute_etag(data)
        if warning := build_decoding_warning(name, data):
            warnings.append(warning.message)
    return _CoreTexts(texts, contents, etags, warnings)


async def _try_read(bank: Bank, name: str) -> bytes | EverkeptError:
    try:
        _, data = await read_bytes(bank, name)
    except EverkeptError as error:
        return error
    return data


async def _summarize_graph(bank: Bank, graph_summary: GraphSummarizer) -> tuple[str | None, list[str]]:
    """Return the graph's summary, or a warning: without the graph, the digest still shows the files."""
    try:
        return await graph_summary(bank), []
    except EverkeptError as error:
        return None, [f"Omitted the graph: {error}"]
