"""PostToolUse and PostToolUseFailure: automatic memories of failures, fixes and edits."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from everkept.core.records import Record
from everkept.hooks.events import Answer, Around, HookEvent
from everkept.hooks.workspace import EDITED, FAILED, FIXED, WORKED, Trail, hooks_folder
from everkept.values import Value

NOTICED_BY = "hook:PostToolUse"  # the tool that such memories name as their source


def is_automatic(record: Record) -> bool:
    return bool(record.facets.get("automatic"))


LONGEST_COMMAND = 200  # characters
MOST_FILES = 8  # that one memory names


class Notice(Value):
    """A memory that nobody asked for."""

    text: str
    importance: float
    tags: tuple[str, ...]
    scope: Literal["session", "project"] = "session"
    file: str | None = None


def shown(command: str) -> str:
    """A command as memories have it."""
    line = " ".join(command.split())
    return f"`{line if len(line) <= LONGEST_COMMAND else line[: LONGEST_COMMAND - 1] + '…'}`"


def failure(command: str, lines: Sequence[str]) -> Notice:
    return Notice("\n".join((failure_head(command), *lines)), 0.4, (FAILED,))


def failure_head(command: str) -> str:
    """How the text of such a memory begins, whatever the error was."""
    return f"{shown(command)} failed:"


def command_of_failure(text: str) -> str:
    """The command as the memory of a failure shows it, or that of its repair."""
    head = text.partition("\n")[0]
    return head.partition("` failed and works again,")[0].removesuffix("` failed:")


def success(command: str, purpose: str) -> Notice:
    return Notice(f"{shown(command)} worked.", 0.3, tuple(dict.fromkeys((WORKED, purpose))))


def repair(command: str, files: Sequence[str], lines: Sequence[str]) -> Notice:
    """The project's, not the session's: it is what one wants to find again some other day."""
    named = ", ".join(files[:MOST_FILES])
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    why = f"after edits of {named}{more}" if files else "without an edit of a file"
    text = f"{shown(command)} failed and works again, {why}."
    told = (f"{text} It had failed with:", *lines) if lines else (text,)
    return Notice("\n".join(told), 0.45, (FIXED,), scope="project")


def edit(file: str) -> Notice:
    return Notice(f"Edited {file}", 0.2, (EDITED,), file=file)


LONGEST_NAME = 500  # characters of a path

_LOCKS = frozenset(
    {
        "cargo.lock",
        "composer.lock",
        "flake.lock",
        "gemfile.lock",
        "go.sum",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "uv.lock",
        "yarn.lock",
    }
)
# Folders of what programs write.
_OUTPUT = frozenset(
    {
        "__pycache__",
        "bower_components",
        "build",
        "coverage",
        "dist",
        "generated",
        "htmlcov",
        "node_modules",
        "out",
        "scratchpad",
        "site-packages",
        "target",
        "temp",
        "tmp",
        "venv",
    }
)
_HIDDEN_BUT_WRITTEN = frozenset(
    {".github", ".gitlab", ".circleci", ".claude", ".vscode", ".cursor"}
)
_ENDINGS = (
    "~",
    ".bak",
    ".g.dart",
    ".lock",
    ".log",
    ".map",
    ".min.css",
    ".min.js",
    ".orig",
    ".out",
    ".pb.go",
    ".pyc",
    ".snap",
    ".swp",
    ".tmp",
    "_pb2.py",
    "_pb2_grpc.py",
)


def is_worth_a_memory(file: PurePosixPath) -> bool:
    """Not lock files, nor what is built, generated, temporary or hidden; the path is relative."""
    *folders, name = (part.lower() for part in file.parts)
    return not (
        len(str(file)) > LONGEST_NAME
        or not str(file).isprintable()
        or name in _LOCKS
        or name.endswith(_ENDINGS)
        or ".generated." in name
        or any(folder in _OUTPUT or _is_hidden(folder) for folder in folders)
    )


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") and folder not in _HIDDEN_BUT_WRITTEN


SHELLS = ("Bash", "PowerShell")
EDITORS = ("Edit", "MultiEdit", "NotebookEdit", "Write")
USED = "PostToolUse"


def tool_used(event: HookEvent, around: Around) -> Answer | None:
    """Most of it is worth nothing, and that is found out before anything is loaded or opened."""
    settings = around.settings
    if not settings.automatic_memories or settings.read_only or not event.session.strip():
        return None
    if event.tool in SHELLS:
        return _ran(event, around)
    if event.tool in EDITORS and event.name == USED:
        _edited(event, around)
    return None


def _edited(event: HookEvent, around: Around) -> None:
    file = _file(event)
    if file is not None:
        trail = _trail(event, around)
        trail.edited(file)
        _store(edit(file), event, around, trail)


def _ran(event: HookEvent, around: Around) -> Answer | None:
    from everkept.hooks.commands import essence, is_trivial, outcome_of, purpose

    command = event.tool_input.get("command")
    if not isinstance(command, str) or not command.strip() or is_trivial(command):
        return None
    aim = purpose(command)
    outcome = outcome_of(event, aim)
    if outcome is None:
        return None
    run = _Run(essence(command), aim, event, around, _trail(event, around))
    return run.failed(outcome.output) if outcome.failed else run.worked()


class _Run(Value):
    """A command that has ended, in the session that ran it.

    The trail is told first: what cannot be stored in time happened all the same.
    """

    command: str
    purpose: str | None
    event: HookEvent
    around: Around
    trail: Trail

    def failed(self, output: str) -> Answer | None:
        from everkept.hooks.commands import telling_lines
        from everkept.hooks.repairs import mended_before

        lines = telling_lines(self._discreet(output))
        self.trail.failed(self.command)
        self._store(failure(self._shown, lines))
        return mended_before(lines, self.event, self.around)

    def worked(self) -> None:
        if self.trail.is_failing(self.command):
            files = self.trail.edited_since_failure(self.command)
            self.trail.worked(self.command)
            self._store(repair(self._shown, files, self._said()))
        elif self.purpose is not None and not self.trail.has_worked(self.command):
            self.trail.worked(self.command)
            self._store(success(self._shown, self.purpose))

    @property
    def _shown(self) -> str:
        """Masked before it is shortened: half a secret looks like none."""
        if not self.around.settings.mask_secrets:
            return self.command
        from everkept.hooks.repairs import without_secrets

        return without_secrets(self.command)

    def _discreet(self, output: str) -> str:
        if not self.around.settings.mask_secrets:
            return output
        from everkept.hooks.repairs import without_those_of

        return without_those_of(self.command, output)

    def _said(self) -> list[str]:
        from everkept.hooks.repairs import said_of_failure

        return said_of_failure(failure_head(self._shown), self.event, self.around)

    def _store(self, notice: "Notice") -> None:
        _store(notice, self.event, self.around, self.trail)


def _store(notice: "Notice", event: HookEvent, around: Around, trail: Trail) -> None:
    """Once a session: the same text again is the memory that is there."""
    if trail.is_full or trail.is_kept(notice.text):
        return
    # All that follows takes a tenth of a second to load.
    import asyncio

    from everkept.app.hook_tasks import note
    from everkept.errors import Refused
    from everkept.families.memories.memory_record import NewMemory
    from everkept.families.memories.model import Source

    wanted = NewMemory(
        content=notice.text,
        type="episodic",
        scope=notice.scope,
        importance=notice.importance,
        session=event.session.strip(),
        tags=notice.tags,
        source=Source(tool=NOTICED_BY, file=notice.file),
    )
    try:
        asyncio.run(note(around.settings, event.folder, wanted))
    except Refused as error:  # no fault: the session is full, or the project was switched off
        if "limit" in error.facts:
            trail.full()
    else:
        trail.kept(notice.text)


def _trail(event: HookEvent, around: Around) -> Trail:
    return Trail(hooks_folder(around.settings), event.session)


def _file(event: HookEvent) -> str | None:
    """The file as the project calls it, where it belongs to it and is worth a memory."""
    from everkept.core.projects import checkout_of

    given = event.tool_input.get("file_path") or event.tool_input.get("notebook_path")
    if not isinstance(given, str) or not given or event.folder is None:
        return None
    try:
        root = checkout_of(event.folder) or event.folder.resolve()
        inside = (event.folder / Path(given)).resolve().relative_to(root)
    except (OSError, ValueError):  # outside of it, or no path at all
        return None
    file = PurePosixPath(inside.as_posix())
    return str(file) if file.parts and is_worth_a_memory(file) else None
