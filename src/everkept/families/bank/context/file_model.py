"""What the tools for a bank's files take and give, as it stands on the wire."""

from typing import Annotated

from everkept.errors import InvalidInput, visible
from everkept.families.bank.context.digest import Digest
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value

CONTENT_LIMIT = 64 * 1024 * 1024  # bytes of one file
BATCH_LIMIT = 1_000  # files in one call

FileName = Annotated[
    str, Field("Root-level name ending in .md or .json.", max_length=1_000, blank=False)
]
Etag = Annotated[
    str,
    Field("Write only if the file still has this ETag.", name="ifMatchEtag", max_length=1_000),
]
MaxTokens = Annotated[int, Field("Budget for the answer.", name="maxTokens", ge=1)]
WithEtags = Annotated[bool, Field("Add ETags.", name="includeEtags")]


class FileWrite(Value):
    filename: Annotated[str, Field("Name.", max_length=1_000)]
    content: Annotated[str, Field("Content.")]
    if_match_etag: Annotated[str, Field("ETag.", name="ifMatchEtag", max_length=1_000)] | None = (
        None
    )


class Initialized(Value):
    """`note` says how to reach the bank where the connection remembers none."""

    path: str
    created: list[str]
    migrated: list[str]
    mode_rules: Annotated[list[str], Field(name="modeRules")]
    note: str | None = None

    @property
    def sentence(self) -> str:
        return _noted(f"Memory Bank initialized at {self.path}", self.note)


class PathSet(Value):
    path: str
    note: str | None = None

    @property
    def sentence(self) -> str:
        if self.note:
            return f"There is a memory bank at {self.path}. {self.note}"
        return f"Memory Bank path set to {self.path}"


class BankStatus(Value):
    """`projectId` is of the project that holds the bank's graph."""

    path: str
    files: list[str]
    core_files_present: Annotated[list[str], Field(name="coreFilesPresent")]
    missing_core_files: Annotated[list[str], Field(name="missingCoreFiles")]
    is_complete: Annotated[bool, Field(name="isComplete")]
    language: str
    last_updated: Annotated[str, Field(name="lastUpdated")] | None = None
    project_id: Annotated[str, Field(name="projectId")] | None = None
    warnings: list[Warned] | None = None


class FileList(Value):
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        listed = "\n".join(["Files in Memory Bank:", *self.files])
        warned = [f"Warning: {warning.message}" for warning in self.warnings or ()]
        return "\n\n".join([listed, *warned])


class FileContent(Value):
    """Without an ETag the text of the answer is the content alone."""

    content: str
    etag: str | None
    filename: str
    start_line: Annotated[int, Field(name="startLine")] | None = None
    end_line: Annotated[int, Field(name="endLine")] | None = None
    total_lines: Annotated[int, Field(name="totalLines")] | None = None
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str | None:
        return self.content if self.etag is None else None


class FileWritten(Value):
    success: bool
    message: str
    filename: str
    etag: str
    warnings: list[Warned] | None = None


class BatchCounts(Value):
    requested: int
    successful: int
    failed: int
    timestamp: str


class ReadResult(Value):
    content: str
    etag: str | None = None
    error: str | None = None


class BatchRead(Value):
    results: dict[str, ReadResult]
    metadata: BatchCounts
    warnings: list[Warned] | None = None


class WriteResult(Value):
    """`filename` is there where it is not the one that was asked for."""

    success: bool
    etag: str | None = None
    filename: str | None = None
    error: str | None = None


class BatchWritten(Value):
    results: dict[str, WriteResult]
    metadata: BatchCounts
    warnings: list[Warned] | None = None


class BundledFile(Value):
    """A file that is cut has no ETag: who wrote it back would lose the rest."""

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


def checked_content(content: str, filename: str) -> str:
    """Gives it back, or says that it is too long."""
    # A character takes four bytes at most: short texts need no counting.
    if len(content) * 4 > CONTENT_LIMIT and (size := len(content.encode())) > CONTENT_LIMIT:
        raise InvalidInput(
            f"The content of {visible(filename)} has {size:,} bytes; at most {CONTENT_LIMIT:,} are "
            "allowed.",
            hint="Split it into several files.",
            argument="content",
            limit=CONTENT_LIMIT,
        )
    return content


def _noted(sentence: str, note: str | None) -> str:
    return f"{sentence}. {note}" if note else sentence
