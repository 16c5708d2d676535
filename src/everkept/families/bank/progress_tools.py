"""Tools for progress, the active context and decisions, and their results."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated

from everkept.core.sessions import ToolCall
from everkept.core.times import Clock, format_iso
from everkept.errors import InvalidInput
from everkept.families.bank.bank_entries import (
    CATEGORY_SIGNS,
    MAX_LIST_ITEMS,
    MAX_TEXT_CHARACTERS,
    Category,
    Decision,
    EntryLine,
    EntryText,
    EntryType,
    HistoryEntry,
    ListItem,
    ProgressEntry,
    Status,
    TaskEdit,
    TaskOutcome,
    WorkItem,
    build_decision_change,
    build_history_change,
    build_note_change,
    combine_changes,
    edit_tasks,
    format_decision_block,
    format_note_line,
    format_progress_line,
    format_session_note,
    insert_session_note,
)
from everkept.families.bank.bank_files import (
    FileText,
    TextChange,
    append_warnings,
    edit,
    find_edit_warnings,
    find_secret_warnings,
    replace_undecoded,
    run_in_thread_if_large,
)
from everkept.families.bank.banks import Banks
from everkept.families.bank.markdown_sections import (
    ISSUE_TITLES,
    NEXT_STEP_TITLES,
    TASK_TITLES,
    replace_list,
    to_one_line,
)
from everkept.families.bank.model import ACTIVE, DECISIONS, PROGRESS, StoreId, prefix_errors
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value


class TrackedProgress(Value):
    entry: str
    timestamp: str
    files: list[str]
    warnings: list[ToolWarning] | None = None

    @property
    def sentence(self) -> str:
        return append_warnings(
            "Progress tracked successfully. Updated progress.md with entry: " + self.entry.removeprefix("- "),
            self.warnings,
        )


class AddedEntry(Value):
    success: bool
    entry_id: Annotated[str, Field(name="entryId")]
    type: str
    summary: str
    timestamp: str
    warnings: list[ToolWarning] | None = None


class UpdatedContext(Value):
    updated: list[str]
    warnings: list[ToolWarning] | None = None

    @property
    def sentence(self) -> str:
        return append_warnings("Active context updated successfully", self.warnings)


class AddedNote(Value):
    success: bool
    message: str
    timestamp: str
    category: str
    warnings: list[ToolWarning] | None = None


class TaskChanges(Value):
    added: int
    removed: int
    replaced: bool


class UpdatedTasks(Value):
    """Result of update_tasks. A very long list shows its first and last tasks; `omitted` is the number between them."""

    success: bool
    message: str
    tasks: list[str]
    changes: TaskChanges
    omitted: int | None = None
    warnings: list[ToolWarning] | None = None


class LoggedDecision(Value):
    title: str
    timestamp: str
    files: list[str]
    warnings: list[ToolWarning] | None = None

    @property
    def sentence(self) -> str:
        return append_warnings(f"Decision logged: {self.title}", self.warnings)


DECISION_ACTION = "Decision Made"
MAX_TASKS_PER_END = 100  # tasks shown at each end of a long list


class ProgressTools(ToolFamily):
    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock

    @tool(Effect.WRITES)
    async def track_progress(
        self,
        call: ToolCall,
        action: Annotated[str, Field("What was done, in a few words", max_length=1_000, blank=False)],
        description: Annotated[str, Field("What was achieved", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        filename: Annotated[str, Field("Related file", max_length=1_000)] | None = None,
        status: Annotated[Status, Field("Outcome of the work")] | None = None,
        update_active_context: Annotated[
            bool, Field("false: add no session note; default true", name="updateActiveContext", listed=False)
        ] = True,
        store_id: StoreId | None = None,
    ) -> TrackedProgress:
        """Add a line to progress.md and to the session notes."""
        bank, at = await self._banks.require_bank(call, store_id), self._clock()
        user, work = await self._banks.find_username(), WorkItem(action, description, filename, status)
        entry = format_progress_line(at, user, work)
        changes: dict[str, TextChange] = {PROGRESS: build_history_change(entry)}
        if update_active_context:
            changes[ACTIVE] = build_note_change(format_note_line(at, user, work))
        written = await edit(bank, changes)
        warnings = await _find_warnings(written, PROGRESS, [action, description, filename or ""])
        return TrackedProgress(entry, format_iso(at), [file.name for file in written.values()], warnings)

    @tool(Effect.WRITES)
    async def add_progress_entry(
        self,
        call: ToolCall,
        type: Annotated[EntryType, Field("Kind of change")],
        summary: Annotated[str, Field("What changed, in one line", max_length=1_000, blank=False)],
        details: Annotated[str, Field("Details in any form", max_length=MAX_TEXT_CHARACTERS)] | None = None,
        files: Annotated[list[EntryLine], Field("Changed files", max_items=MAX_LIST_ITEMS)] | None = None,
        tags: Annotated[list[EntryLine], Field("Labels, such as api", max_items=MAX_LIST_ITEMS)] | None = None,
        store_id: StoreId | None = None,
    ) -> AddedEntry:
        """Add an entry with details to progress.md. For one line use track_progress."""
        bank, at = await self._banks.require_bank(call, store_id), self._clock()
        entry = ProgressEntry(type, to_one_line(summary), details, files or [], tags or [])
        change = HistoryEntry(at, await self._banks.find_username(), entry)
        written = await edit(bank, {PROGRESS: change})
        texts = [summary, details or "", *entry.files, *entry.tags]
        warnings = await _find_warnings(written, PROGRESS, texts)
        return AddedEntry(True, change.id, type, entry.summary, format_iso(at), warnings)

    @tool(Effect.REPEATABLE)
    async def update_active_context(
        self,
        call: ToolCall,
        tasks: Annotated[list[ListItem], Field("Current tasks", max_items=MAX_LIST_ITEMS)] | None = None,
        issues: Annotated[list[ListItem], Field("Known issues", max_items=MAX_LIST_ITEMS)] | None = None,
        next_steps: Annotated[list[ListItem], Field("Next steps", name="nextSteps", max_items=MAX_LIST_ITEMS)]
        | None = None,
        store_id: StoreId | None = None,
    ) -> UpdatedContext:
        """Replace the task, issue or next-step list in active-context.md. Pass [] to clear a list."""
        bank = await self._banks.require_bank(call, store_id)
        given = [
            (titles, items)
            for titles, items in ((TASK_TITLES, tasks), (ISSUE_TITLES, issues), (NEXT_STEP_TITLES, next_steps))
            if items is not None
        ]
        if not given:
            raise _build_nothing_error("tasks", "issues", "nextSteps")
        steps = [
            partial(replace_list, titles=titles, wanted=[item.strip() for item in items]) for titles, items in given
        ]
        with prefix_errors("Error updating active context"):
            written = await edit(bank, {ACTIVE: combine_changes(steps)})
        texts = [item for _, items in given for item in items]
        warnings = await _find_warnings(written, ACTIVE, texts)
        return UpdatedContext([titles[0] for titles, _ in given], warnings)

    @tool(Effect.WRITES)
    async def add_session_note(
        self,
        call: ToolCall,
        note: Annotated[str, Field("Text of the note", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        category: Annotated[Category, Field("Kind of note")] | None = None,
        store_id: StoreId | None = None,
    ) -> AddedNote:
        """Add a note with its time to active-context.md."""
        bank, at = await self._banks.require_bank(call, store_id), self._clock()
        user = await self._banks.find_username()
        line = format_session_note(at, user, note, CATEGORY_SIGNS[category] if category else None)
        written = await edit(bank, {ACTIVE: lambda text: insert_session_note(text, line)})
        warnings = await _find_warnings(written, ACTIVE, [note])
        return AddedNote(True, "Session note added", format_iso(at), category or "none", warnings)

    @tool(Effect.REPEATABLE)
    async def update_tasks(
        self,
        call: ToolCall,
        add: Annotated[list[ListItem], Field("Tasks to add; skips known tasks", max_items=MAX_LIST_ITEMS)]
        | None = None,
        remove: Annotated[
            list[ListItem], Field("Remove every task that contains one of these texts", max_items=MAX_LIST_ITEMS)
        ]
        | None = None,
        replace: Annotated[list[ListItem], Field("New list; `add` and `remove` are ignored", max_items=MAX_LIST_ITEMS)]
        | None = None,
        store_id: StoreId | None = None,
    ) -> UpdatedTasks:
        """Add, remove or replace tasks in active-context.md."""
        bank = await self._banks.require_bank(call, store_id)
        wanted = TaskEdit(add, remove, replace)
        if wanted.is_empty:
            raise _build_nothing_error("add", "remove", "replace")
        outcomes: list[TaskOutcome] = []

        def change(text: str) -> str:
            outcomes.append(edit_tasks(text, wanted))
            return outcomes[-1].text

        written = await edit(bank, {ACTIVE: combine_changes([change])})
        outcome = outcomes[-1]
        message = "Tasks updated" if written else "The list already matches. Nothing changed."
        seen = written or {ACTIVE: FileText(ACTIVE, outcome.text, "")}
        about = await _find_warnings(seen, ACTIVE, [*(add or ()), *(replace or ())])
        changes = TaskChanges(outcome.added, outcome.removed, replace is not None)
        tasks, omitted = _select_ends(outcome.tasks)
        warnings = [*outcome.warnings, *(about or ())]
        return UpdatedTasks(True, message, tasks, changes, omitted, warnings or None)

    @tool(Effect.WRITES)
    async def log_decision(
        self,
        call: ToolCall,
        title: Annotated[str, Field("Short title", max_length=1_000, blank=False)],
        context: Annotated[str, Field("Why a decision was needed", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        decision: Annotated[str, Field("What was decided", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        alternatives: Annotated[
            list[EntryText], Field("Alternatives considered", max_items=MAX_LIST_ITEMS, one_or_more=True)
        ]
        | None = None,
        consequences: Annotated[list[EntryText], Field("Expected effects", max_items=MAX_LIST_ITEMS, one_or_more=True)]
        | None = None,
        store_id: StoreId | None = None,
    ) -> LoggedDecision:
        """Add a decision to decision-log.md and a line to progress.md."""
        bank, at = await self._banks.require_bank(call, store_id), self._clock()
        user = await self._banks.find_username()
        taken = Decision(to_one_line(title), context, decision, alternatives or [], consequences or [])
        work = WorkItem(DECISION_ACTION, taken.title)
        written = await edit(
            bank,
            {
                DECISIONS: build_decision_change(format_decision_block(at, user, taken)),
                PROGRESS: build_history_change(format_progress_line(at, user, work)),
                ACTIVE: build_note_change(format_note_line(at, user, work)),
            },
        )
        texts = [title, context, decision, *taken.alternatives, *taken.consequences]
        warnings = await _find_warnings(written, DECISIONS, texts)
        names = [file.name for file in written.values()]
        return LoggedDecision(taken.title, format_iso(at), names, warnings)


async def _find_warnings(written: Mapping[str, FileText], name: str, texts: Iterable[str]) -> list[ToolWarning] | None:
    """Return warnings about the written files, and about secrets in the texts written to one of them."""
    edited = {file.name: file.text for file in written.values()}
    found = await run_in_thread_if_large(sum(map(len, edited.values())), lambda: find_edit_warnings(edited))
    return [*found, *(await find_secret_warnings({name: "\n".join(texts)}) or ())] or None


def _select_ends(tasks: list[str]) -> tuple[list[str], int | None]:
    shown = [replace_undecoded(task) for task in tasks]
    omitted = len(shown) - 2 * MAX_TASKS_PER_END
    if omitted <= 0:
        return shown, None
    return [*shown[:MAX_TASKS_PER_END], *shown[-MAX_TASKS_PER_END:]], omitted


def _build_nothing_error(*arguments: str) -> InvalidInput:
    listed = ", ".join(f"`{name}`" for name in arguments)
    return InvalidInput("Nothing to update.", hint=f"Pass at least one of {listed}.")
