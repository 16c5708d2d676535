"""Every deliberate error, named for what the caller does next.

EverkeptError              code, message, hint, facts
├── InvalidInput            the caller can fix an argument
│   └── AmbiguousName       carries the candidates
├── NotFound                carries kind and name
│   ├── BankNotFound        carries where it was expected, and what to do
│   └── FileNotFound        of a memory bank
├── UpstreamError           the server behind a tool of the gateway said no, in its own words
├── Conflict                exists already, or changed underneath
│   └── EtagMismatch        a file is not the one that was read
├── Refused                 understood, and denied by policy
│   ├── NoActiveProject
│   ├── ProjectArchived
│   ├── ProjectOff          switched off: nothing of it is stored or given out
│   ├── QuotaExceeded       an account has or asks for more than the owner allows
│   ├── MarkerMismatch      a file is not what its name says
│   └── ReadOnly
└── Unavailable             something outside failed; retrying may help
    ├── StoreBusy           another process kept the write lock
    ├── StoreUnreachable    the database cannot be reached, or does not answer
    ├── QueryTimeout        the database answers, but not this in time
    ├── StorageFull         carries the sizes
    ├── StoreDamaged        the file is no database, or a broken one
    ├── StoreTooNew         written by a newer version of the program
    ├── ModelUnavailable    the embedding model is missing or damaged
    └── UpstreamUnavailable the server behind a tool of the gateway did not answer

Anything else that is raised is a bug: it is logged once at the top with its traceback, and the
caller sees ``internal_error`` with an id.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_LISTED = 10  # candidates in a sentence
NO_FOLDER = "(no folder is chosen)"  # where a memory bank is that nobody named


def escape_name(name: str) -> str:
    """A name as a message shows it: escaped where it holds what cannot be seen, or turns others."""
    return name if name.isprintable() else ascii(name)[1:-1]


class EverkeptError(Exception):
    """Base of everything that is raised on purpose."""

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
        """The error as structured content: the same keys for every tool, then the facts."""
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
    """An argument is wrong; the message names it, its value and what would do."""

    code = "invalid_input"


class AmbiguousName(InvalidInput):
    """A name fits several things."""

    code = "ambiguous_name"

    def __init__(self, kind: str, name: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        listed = ", ".join(f"`{c['use']}` (id {c['id']})" for c in candidates[:MAX_LISTED])
        more = f" and {len(candidates) - MAX_LISTED} more" if len(candidates) > MAX_LISTED else ""
        super().__init__(
            f'{kind.capitalize()} "{name}" fits {len(candidates)}: {listed}{more}.',
            hint="Use one of these forms, or its id.",
            kind=kind,
            name=name,
            candidates=[dict(candidate) for candidate in candidates],
        )


class NotFound(EverkeptError):
    """There is no such thing."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, hint: str | None = None, message: str | None = None) -> None:
        sentence = message or f'{kind.capitalize()} "{name}" not found.'
        super().__init__(sentence, hint=hint, kind=kind, name=name)


class Conflict(EverkeptError):
    """It exists already, or it changed since it was read."""

    code = "conflict"
    retry_possible = True


class UpstreamError(EverkeptError):
    """The server behind a tool of the gateway answered with an error; the message is its own."""

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
    """There is no memory bank where one was looked for."""

    code = "bank_not_found"

    def __init__(self, expected_path: str) -> None:
        suggestion = "Use initialize_memory_bank to create one."
        super().__init__("memory bank", expected_path, message="Memory Bank not found.")
        if expected_path == NO_FOLDER:
            self.place = "No folder is chosen: give `path` to it, or `storeId` to this call."
            self.facts = {"kind": "memory bank", "suggestion": f"{suggestion} {self.place}"}
        else:
            self.place = f"Expected at {expected_path}."
            expected = {"expectedPath": expected_path, "suggestion": suggestion}
            self.facts = {**self.facts, **expected}
        self.hint = f"{suggestion} {self.place}"


class FileNotFound(NotFound):
    """A memory bank has no file of that name."""

    code = "FILE_NOT_FOUND"

    def __init__(self, name: str, *, hint: str | None = None) -> None:
        super().__init__(
            "file",
            name,
            message=f"File not found: {escape_name(name)}.",
            hint=hint or "list_memory_bank_files shows what there is.",
        )


class EtagMismatch(Conflict):
    """The file was changed since it was read."""

    code = "ETAG_MISMATCH"

    def __init__(self, name: str, expected: str, current: str) -> None:
        super().__init__(
            f"{escape_name(name)} was changed since it was read: expected ETag {expected}, it has {current}.",
            hint="Read it again, and write what takes the change into account.",
            filename=name,
            expectedEtag=expected,
            currentEtag=current,
        )


class Refused(EverkeptError):
    """Understood, and denied by policy."""

    code = "refused"


class QuotaExceeded(Refused):
    """An account has, or asks for, more than the owner of the server allows."""

    code = "quota_exceeded"


class NoActiveProject(Refused):
    """A graph tool was called without a project."""

    code = "no_active_project"

    def __init__(self, *, hint: str | None = None) -> None:
        super().__init__("No active project. Use switch_project to select one.", hint=hint)


class ProjectArchived(Refused):
    """The project is put away."""

    code = "project_archived"

    def __init__(self, name: str) -> None:
        super().__init__(f'Project "{name}" is archived.', hint="restore_project brings it back.", project=name)


class ProjectOff(Refused):
    """The project is switched off: nothing of it is stored, and nothing of it is given out."""

    code = "project_off"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'Project "{name}" is switched off.',
            hint="`everkept on` in its folder, or with --project, switches it on again.",
            project=name,
        )


class MarkerMismatch(Refused):
    """The first line is not the one that a graph's log begins with; the file is left as it is."""

    code = "MARKER_MISMATCH"


class ReadOnly(Refused):
    """Nothing may be written here."""

    code = "read_only"


class Unavailable(EverkeptError):
    """Something outside failed; retrying may help."""

    code = "unavailable"
    retry_possible = True


class StoreBusy(Unavailable):
    """Another process kept the write lock longer than we wait."""

    code = "store_busy"


class StoreUnreachable(Unavailable):
    """The database cannot be reached, or went away: what was under way may have happened."""

    code = "memory_unavailable"
    degraded = True


class QueryTimeout(Unavailable):
    """The database is there, but it took longer over this than it may."""

    code = "query_timeout"


class StorageFull(Unavailable):
    """There is no room for the write; nothing of it was kept."""

    code = "storage_full"


class StoreDamaged(Unavailable):
    """The file cannot be read as a database; it was not touched."""

    code = "store_damaged"
    retry_possible = False


class StoreTooNew(Unavailable):
    """The database was written by a newer version; it was not touched."""

    code = "store_too_new"
    retry_possible = False


class ModelUnavailable(Unavailable):
    """The embedding model is missing or damaged; what needs no meaning works without it."""

    code = "model_unavailable"
    retry_possible = False

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"The embedding model cannot be used: {path} {reason}.",
            hint="Installing Everkept again restores it.",
            path=path,
        )


class UpstreamUnavailable(Unavailable):
    """The server behind a tool of the gateway cannot be reached, ended, or took too long."""

    # Whether a call that was sent took effect is unknown: another attempt is possible only where
    # nothing could happen twice by it, and where it may help.
    code = "upstream_unavailable"

    def __init__(
        self, upstream: str, reason: str, *, hint: str | None = None, retry_possible: bool = True, **facts: Any
    ) -> None:
        super().__init__(f"{upstream} {reason}", hint=hint, upstream=upstream, **facts)
        self.retry_possible = retry_possible

    def __str__(self) -> str:
        return f"Error: {super().__str__()}"
