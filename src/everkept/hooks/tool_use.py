"""Handler of PostToolUse and PostToolUseFailure, which stores automatic memories of failures, fixes and edits."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from everkept.core.records import Record
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.workspace import EDITED_TAG, FAILED_TAG, FIXED_TAG, WORKED_TAG, SessionEvents, get_hooks_folder
from everkept.values import Value

SOURCE_TOOL = "hook:PostToolUse"  # tool that automatic memories name as their source


def is_automatic(record: Record) -> bool:
    return bool(record.facets.get("automatic"))


MAX_COMMAND_CHARACTERS = 200
MAX_FILES = 8  # in the text of one memory


class AutomaticMemory(Value):
    """Memory to store without a request by the user."""

    text: str
    importance: float
    tags: tuple[str, ...]
    scope: Literal["session", "project"] = "session"
    file: str | None = None


def format_command(command: str) -> str:
    """Return a command in the form that memories use."""
    line = " ".join(command.split())
    if len(line) > MAX_COMMAND_CHARACTERS:
        line = line[: MAX_COMMAND_CHARACTERS - 1] + "…"
    return f"`{line}`"


def build_failure(command: str, lines: Sequence[str]) -> AutomaticMemory:
    return AutomaticMemory("\n".join((format_failure_head(command), *lines)), 0.4, (FAILED_TAG,))


def format_failure_head(command: str) -> str:
    """Return the first line of a failure's memory, whatever the error was."""
    return f"{format_command(command)} failed:"


def extract_command(text: str) -> str:
    """Return the command in the memory of a failure or of its fix."""
    head = text.partition("\n")[0]
    for mark in ("` failed and then succeeded,", "` failed and works again,"):  # older memories have the second
        head = head.partition(mark)[0]
    return head.removesuffix("` failed:")


def build_success(command: str, purpose: str) -> AutomaticMemory:
    return AutomaticMemory(f"{format_command(command)} worked.", 0.3, tuple(dict.fromkeys((WORKED_TAG, purpose))))


def build_fix(command: str, files: Sequence[str], lines: Sequence[str]) -> AutomaticMemory:
    """Build the memory of a fix. Its scope is the project, so that other sessions find it."""
    named = ", ".join(files[:MAX_FILES])
    more = f" and {len(files) - MAX_FILES} more" if len(files) > MAX_FILES else ""
    why = f"after edits of {named}{more}" if files else "with no file edited in between"
    text = f"{format_command(command)} failed and then succeeded, {why}."
    told = (f"{text} It had failed with:", *lines) if lines else (text,)
    return AutomaticMemory("\n".join(told), 0.45, (FIXED_TAG,), scope="project")


def build_edit(file: str) -> AutomaticMemory:
    return AutomaticMemory(f"Edited {file}", 0.2, (EDITED_TAG,), file=file)


MAX_PATH_CHARACTERS = 500

_LOCK_FILES = (
    *("cargo.lock", "composer.lock", "flake.lock", "gemfile.lock", "go.sum", "npm-shrinkwrap.json"),
    *("package-lock.json", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "yarn.lock"),
)
# Folders into which programs write.
_OUTPUT_FOLDERS = (
    *("__pycache__", "bower_components", "build", "coverage", "dist", "generated", "htmlcov", "node_modules"),
    *("out", "scratchpad", "site-packages", "target", "temp", "tmp", "venv"),
)
_EDITED_HIDDEN_FOLDERS = (".github", ".gitlab", ".circleci", ".claude", ".vscode", ".cursor")
_GENERATED_SUFFIXES = (
    *("~", ".bak", ".g.dart", ".lock", ".log", ".map", ".min.css", ".min.js", ".orig", ".out", ".pb.go"),
    *(".pyc", ".snap", ".swp", ".tmp", "_pb2.py", "_pb2_grpc.py"),
)


def is_worth_a_memory(file: PurePosixPath) -> bool:
    """Return False for lock files and for built, generated, temporary or hidden files. The path is relative."""
    *folders, name = (part.lower() for part in file.parts)
    hidden = [folder for folder in folders if folder.startswith(".") and folder not in _EDITED_HIDDEN_FOLDERS]
    return not (
        hidden
        or len(str(file)) > MAX_PATH_CHARACTERS
        or not str(file).isprintable()
        or name in _LOCK_FILES
        or name.endswith(_GENERATED_SUFFIXES)
        or ".generated." in name
        or any(folder in _OUTPUT_FOLDERS for folder in folders)
    )


SHELL_TOOLS = ("Bash", "PowerShell")
EDIT_TOOLS = ("Edit", "MultiEdit", "NotebookEdit", "Write")
SUCCESS_EVENT = "PostToolUse"


def handle_tool_use(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Store a memory if the tool's result is worth one. Most are not, and end before anything is loaded or opened."""
    settings = around.settings
    if not settings.automatic_memories or settings.read_only or not event.session.strip():
        return None
    if event.tool in SHELL_TOOLS:
        return _handle_command(event, around)
    if event.tool in EDIT_TOOLS and event.name == SUCCESS_EVENT:
        _handle_edit(event, around)
    return None


def _handle_edit(event: HookEvent, around: HookContext) -> None:
    files = _find_files(event)
    if not files:
        return
    trail = _open_events(event, around)
    for file in files:
        trail.add_edit(file)
        _store(build_edit(file), event, around, trail)


def _handle_command(event: HookEvent, around: HookContext) -> HookAnswer | None:
    from everkept.hooks.shell_commands import condense_command, find_outcome, find_purpose, is_trivial

    command = event.tool_input.get("command")
    if not isinstance(command, str) or not command.strip() or is_trivial(command):
        return None
    aim = find_purpose(command)
    outcome = find_outcome(event, aim)
    if outcome is None:
        return None
    run = _CommandRun(condense_command(command), aim, event, around, _open_events(event, around))
    return run.handle_failure(outcome.output) if outcome.failed else run.handle_success()


class _CommandRun(Value):
    """Command that has ended. Its event is logged first, because it happened even if it cannot be stored in time."""

    command: str
    purpose: str | None
    event: HookEvent
    around: HookContext
    trail: SessionEvents

    def handle_failure(self, output: str) -> HookAnswer | None:
        from everkept.hooks.repairs import find_earlier_fix
        from everkept.hooks.shell_commands import extract_error_lines

        lines = extract_error_lines(self._mask_output(output))
        # Until the command works, the last failure is the one that counts.
        earlier = self._find_failure() if self.trail.is_failing(self.command) else None
        is_first = not self.trail.is_failing(self.command)
        self.trail.add_failure(self.command)
        self._store(build_failure(self._display_command, lines), earlier, is_new=is_first)
        return find_earlier_fix(lines, self.event, self.around)

    def handle_success(self) -> None:
        if self.trail.is_failing(self.command):
            files = self.trail.list_edits_since_failure(self.command)
            self.trail.add_success(self.command)
            failure = self._find_failure()
            lines = [] if failure is None else failure.text.splitlines()[1:]
            self._store(build_fix(self._display_command, files, lines), failure)
        elif self.purpose is not None and not self.trail.has_worked(self.command):
            self.trail.add_success(self.command)
            self._store(build_success(self._display_command, self.purpose))

    @property
    def _display_command(self) -> str:
        """Return the command with secrets masked before it is shortened, because a cut secret is not recognized."""
        if not self.around.settings.mask_secrets:
            return self.command
        from everkept.hooks.repairs import mask_command

        return mask_command(self.command)

    def _mask_output(self, output: str) -> str:
        if not self.around.settings.mask_secrets:
            return output
        from everkept.hooks.repairs import mask_output

        return mask_output(self.command, output)

    def _find_failure(self) -> Record | None:
        from everkept.hooks.repairs import find_failure

        return find_failure(format_failure_head(self._display_command), self.event, self.around)

    def _store(self, notice: "AutomaticMemory", earlier: Record | None = None, *, is_new: bool = False) -> None:
        _store(notice, self.event, self.around, self.trail, earlier, is_new=is_new)


def _store(
    notice: "AutomaticMemory",
    event: HookEvent,
    around: HookContext,
    trail: SessionEvents,
    earlier: Record | None = None,
    *,
    is_new: bool = False,
) -> None:
    """Store a memory, which takes the place of an earlier one about the same command.

    A text is stored once per session, unless it `is_new` since its memory was replaced.
    """
    is_known = trail.is_stored(notice.text) and not is_new
    if trail.is_full or (is_known and (earlier is None or earlier.text == notice.text)):
        return
    # These imports take a tenth of a second.
    import asyncio

    from everkept.app.hook_tasks import store_memory
    from everkept.errors import Refused
    from everkept.families.memories.memory_record import NewMemory
    from everkept.families.memories.model import MemorySource

    wanted = NewMemory(
        content=notice.text,
        type="episodic",
        scope=notice.scope,
        importance=notice.importance,
        session=event.session.strip(),
        tags=notice.tags,
        source=MemorySource(tool=SOURCE_TOOL, file=notice.file),
    )
    try:
        replaced = None if earlier is None or earlier.text == notice.text else earlier.id
        asyncio.run(store_memory(around.settings, event.folder, wanted, replaced=replaced))
    except Refused as error:  # not a fault: the session is full, or the project was turned off
        if "limit" in error.facts:
            trail.mark_full()
    else:
        trail.add_stored(notice.text)


def _open_events(event: HookEvent, around: HookContext) -> SessionEvents:
    return SessionEvents(get_hooks_folder(around.settings), event.session)


def _find_files(event: HookEvent) -> list[str]:
    """Return the edited files that are worth a memory."""
    told = event.tool_input
    given: Any = told.get("file_paths") or [told.get("file_path") or told.get("notebook_path")]
    folder = event.folder
    if not isinstance(given, list) or folder is None:
        return []
    named = (each for each in cast(list[Any], given) if isinstance(each, str) and each)
    return list(filter(None, (_find_file(each, folder) for each in named)))


def _find_file(given: str, folder: Path) -> str | None:
    """Return the file's path in the project, if the file belongs to the project and is worth a memory."""
    from everkept.core.projects import find_checkout

    try:
        root = find_checkout(folder) or folder.resolve()
        inside = (folder / Path(given)).resolve().relative_to(root)
    except (OSError, ValueError):  # outside the project, or not a path
        return None
    file = PurePosixPath(inside.as_posix())
    return str(file) if file.parts and is_worth_a_memory(file) else None
