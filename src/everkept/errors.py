"""Every deliberate error, named for what the caller does next.

EverkeptError                 code, message, hint, facts
├── InvalidInput               the caller can fix an argument
│   └── AmbiguousName          lists the candidates
│       └── AmbiguousId        the first characters of several ids
├── NotFound                   has the kind and the name
│   ├── BankNotFound           has the expected folder and what to do
│   └── FileNotFound           of a memory bank
├── UpstreamError              an error of the server behind a tool of the gateway, in its own words
├── Conflict                   the data changed since it was read; trying again can help
│   ├── ProjectExists          trying again cannot help
│   ├── ProjectStatusConflict  the project is archived already, or not archived
│   └── EtagMismatch           the file changed since it was read
├── Refused                    understood and not allowed
│   ├── NoActiveProject
│   ├── ProjectArchived
│   ├── ProjectOff             memory is turned off for the project
│   ├── QuotaExceeded          the account has or requests more than the owner allows
│   ├── MarkerMismatch         the first line is not the marker of a graph log
│   └── ReadOnly
└── Unavailable                something outside failed; trying again may help
    ├── StoreBusy              another process held the write lock for too long
    ├── StoreUnreachable       the database is unreachable
    ├── QueryTimeout           the database took too long to answer
    ├── StorageFull            has the sizes
    ├── StoreDamaged           the file cannot be read as a database
    ├── StoreTooNew            a newer version wrote the database
    ├── ModelUnavailable       the embedding model is missing or damaged
    │   └── ModelReplaced      another model is in use in this data folder
    └── UpstreamUnavailable    the server behind a tool of the gateway did not answer

Any other exception is a bug. It is logged once with its traceback, and the caller gets ``internal_error`` with an id.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_LISTED = 10  # candidates in a sentence
NO_FOLDER = "(no folder is selected)"  # place of a memory bank without a selected folder


def escape_name(name: str) -> str:
    """Return a name for a message. Invisible and bidirectional characters are escaped."""
    return name if name.isprintable() else ascii(name)[1:-1]


class EverkeptError(Exception):
    """Base of all errors that Everkept raises on purpose."""

    code = "error"
    retry_possible = False
    degraded = False

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts: Mapping[str, Any] = facts

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def to_envelope(self) -> dict[str, Any]:
        """Return the error as structured content: the same keys for every tool, then the facts."""
        fixed: dict[str, Any] = {
            "error": self.code,
            "message": self.message,
            "degraded": self.degraded,
            "retry_possible": self.retry_possible,
        }
        if self.hint:
            fixed["hint"] = self.hint
        return fixed | dict(self.facts)


class InvalidInput(EverkeptError):
    """An argument is wrong. The message names it, its value and the values that are allowed."""

    code = "invalid_input"


class AmbiguousName(InvalidInput):
    """A name matches several things."""

    code = "ambiguous_name"

    def __init__(self, kind: str, name: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        listed = [f"`{candidate['use']}` (id {candidate['id']})" for candidate in candidates]
        self._describe(f'{kind.capitalize()} "{name}"', listed, "Use one of these forms, or its id.")
        self.facts = {"kind": kind, "name": name, "candidates": [dict(candidate) for candidate in candidates]}

    def _describe(self, subject: str, listed: Sequence[str], hint: str) -> None:
        more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
        self.summary = f"{subject} matches {len(listed)}."  # for callers that list the candidates themselves
        super().__init__(f"{subject} matches {len(listed)}: {', '.join(listed[:MAX_LISTED])}{more}.", hint=hint)


class AmbiguousId(AmbiguousName):
    """The first characters of an id match several things."""

    code = "ambiguous_id"

    def __init__(self, kind: str, prefix: str, found: Mapping[str, str]) -> None:
        """Create the error. `found` maps the ids to titles."""
        listed = [f'{each} ("{title}")' for each, title in found.items()]
        self._describe(f'{kind.capitalize()} id "{prefix}"', listed, "Use more characters of the id.")
        candidates = [{"use": title, "id": each} for each, title in found.items()]
        self.facts = {"kind": kind, "name": prefix, "candidates": candidates}


class NotFound(EverkeptError):
    """The named thing does not exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, hint: str | None = None, message: str | None = None) -> None:
        sentence = message or f'{kind.capitalize()} "{name}" not found.'
        super().__init__(sentence, hint=hint, kind=kind, name=name)


class Conflict(EverkeptError):
    """Another write got in between: the data changed since it was read. Trying again can help."""

    code = "conflict"
    retry_possible = True


class ProjectExists(Conflict):
    """A project with this name exists, so another attempt fails too."""

    code = "project_exists"
    retry_possible = False

    def __init__(self, name: str, *, is_archived: bool = False, hint: str | None = None) -> None:
        if is_archived:
            message, tool = f'Project "{name}" already exists and is archived.', "restore_project"
        else:
            message, tool = f'Project "{name}" already exists.', "switch_project"
        hint = hint or f"Call {tool} to use it, or choose another name."
        super().__init__(message, hint=hint, kind="project", name=name)


class ProjectStatusConflict(Conflict):
    """The project already has the requested status."""

    code = "project_status"
    retry_possible = False

    def __init__(self, name: str, status: str) -> None:
        state = "already archived" if status == "archived" else "not archived"
        super().__init__(
            f'Project "{name}" is {state}.', hint="See the status of projects with list_projects.", project=name
        )


class UpstreamError(EverkeptError):
    """The server behind a tool of the gateway answered with an error. The message is from that server."""

    code = "upstream_error"

    def __init__(
        self, message: str, *, upstream: str, upstream_code: int | None = None, upstream_data: Any = None
    ) -> None:
        facts: dict[str, Any] = {"upstream_code": upstream_code, "upstream_data": upstream_data}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        super().__init__(message, upstream=upstream, **known)

    def __str__(self) -> str:
        return f"Error: {self.message}"


class BankNotFound(NotFound):
    """The folder is not a memory bank."""

    code = "bank_not_found"

    def __init__(self, expected_path: str) -> None:
        suggestion = "Use initialize_memory_bank to create one."
        super().__init__("memory bank", expected_path, message="Memory Bank not found.")
        if expected_path == NO_FOLDER:
            self.place = "No folder is selected. Pass `path` to it, or pass `storeId` to this call."
            self.facts = {"kind": "memory bank", "suggestion": f"{suggestion} {self.place}"}
        else:
            self.place = f"Expected at {expected_path}."
            expected = {"expectedPath": expected_path, "suggestion": suggestion}
            self.facts = {**self.facts, **expected}
        self.hint = f"{suggestion} {self.place}"


class FileNotFound(NotFound):
    """The memory bank does not have a file with that name."""

    code = "FILE_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(
            "file",
            name,
            message=f"File not found: {escape_name(name)}.",
            hint="List the files with list_memory_bank_files.",
        )


class EtagMismatch(Conflict):
    """The file changed since it was read."""

    code = "ETAG_MISMATCH"
    retry_possible = False  # with the same ETag

    def __init__(self, name: str, expected: str, current: str) -> None:
        super().__init__(
            f"{escape_name(name)} changed since it was read: expected ETag {expected}, found {current}.",
            hint="Read it again, and write a text that includes the change.",
            filename=name,
            expectedEtag=expected,
            currentEtag=current,
        )


class Refused(EverkeptError):
    """The request is understood and not allowed."""

    code = "refused"


class QuotaExceeded(Refused):
    """An account has, or asks for, more than the owner of the server allows."""

    code = "quota_exceeded"


class NoActiveProject(Refused):
    """A graph tool was called without an active project."""

    code = "no_active_project"

    def __init__(self, *, hint: str | None = None) -> None:
        super().__init__("No active project. Use switch_project to select one.", hint=hint)


class ProjectArchived(Refused):
    """The project is archived."""

    code = "project_archived"

    def __init__(self, name: str) -> None:
        super().__init__(f'Project "{name}" is archived.', hint="Call restore_project to use it again.", project=name)


class ProjectOff(Refused):
    """Memory is turned off for the project: nothing is stored or recalled."""

    code = "project_off"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'Memory is off for project "{name}".',
            hint="To turn it on, run `everkept on` in its folder, or with --project.",
            project=name,
        )


class MarkerMismatch(Refused):
    """The first line is not the marker of a graph log. The file is unchanged."""

    code = "MARKER_MISMATCH"


class ReadOnly(Refused):
    """Writing is not allowed here."""

    code = "read_only"


class Unavailable(EverkeptError):
    """Something outside Everkept failed. Trying again may help."""

    code = "unavailable"
    retry_possible = True


class StoreBusy(Unavailable):
    """Another process held the write lock for too long."""

    code = "store_busy"


class StoreUnreachable(Unavailable):
    """The database is unreachable. The outcome of a call in progress is unknown."""

    code = "memory_unavailable"
    degraded = True


class QueryTimeout(Unavailable):
    """The database took too long to answer."""

    code = "query_timeout"


class StorageFull(Unavailable):
    """The disk is full. Nothing was stored."""

    code = "storage_full"


class StoreDamaged(Unavailable):
    """The file cannot be read as a database. It is unchanged."""

    code = "store_damaged"
    retry_possible = False


class StoreTooNew(Unavailable):
    """A newer version wrote the database. It is unchanged."""

    code = "store_too_new"
    retry_possible = False


class ModelUnavailable(Unavailable):
    """The embedding model is missing or damaged. Search by words still works."""

    code = "model_unavailable"
    retry_possible = False

    def __init__(self, path: str, reason: str, *, hint: str = "Install Everkept again to restore it.") -> None:
        super().__init__(f"Cannot use the embedding model: {path} {reason}.", hint=hint, path=path)


class ModelReplaced(ModelUnavailable):
    """Another embedding model is in use in this data folder; this process searches by words."""

    code = "model_replaced"

    def __init__(self, own: str, current: str) -> None:
        Unavailable.__init__(
            self,
            f"This data folder uses the embedding model {current}, but this process is set to {own}.",
            hint=f"Set `embedding_model` to the same model everywhere. To use {own} again, run `everkept index`.",
            model=own,
            current=current,
        )


class UpstreamUnavailable(Unavailable):
    """The server behind a tool of the gateway is unreachable, ended, or took too long."""

    # A call that was sent may have taken effect. So another attempt is possible only if it cannot do anything twice.
    code = "upstream_unavailable"

    def __init__(
        self, upstream: str, reason: str, *, hint: str | None = None, retry_possible: bool = True, **facts: Any
    ) -> None:
        super().__init__(f"{upstream} {reason}", hint=hint, upstream=upstream, **facts)
        self.retry_possible = retry_possible

    def __str__(self) -> str:
        return f"Error: {super().__str__()}"
