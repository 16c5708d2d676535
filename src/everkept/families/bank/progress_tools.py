"""The tools for progress, the active context and decisions, and what they answer."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated

from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import InvalidInput
from everkept.families.bank.bank_entries import (
    ITEM_LIMIT,
    SIGNS,
    TEXT_LIMIT,
    Category,
    Decision,
    EntryType,
    HistoryEntry,
    Line,
    ListItem,
    ProgressEntry,
    Status,
    TaskEdit,
    TaskOutcome,
    Text,
    Work,
    decided,
    decision_block,
    edited_tasks,
    history_line,
    in_turn,
    note_line,
    noted,
    progress_line,
    session_note,
    tracked_note,
)
from everkept.families.bank.bank_files import (
    Change,
    FileText,
    aside,
    edit,
    edit_warnings,
    presentable,
    scan_warnings,
    with_warnings,
)
from everkept.families.bank.banks import Banks
from everkept.families.bank.markdown_sections import ISSUES, NEXT_STEPS, TASKS, one_line, with_list
from everkept.families.bank.model import ACTIVE, DECISIONS, PROGRESS, StoreId, attempting
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value


class Tracked(Value):
    entry: str
    timestamp: str
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings(
            "Progress tracked successfully. Updated progress.md with entry: "
            + self.entry.removeprefix("- "),
            self.warnings,
        )


class EntryAdded(Value):
    success: bool
    entry_id: Annotated[str, Field(name="entryId")]
    type: str
    summary: str
    timestamp: str
    warnings: list[Warned] | None = None


class ContextUpdated(Value):
    updated: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings("Active context updated successfully", self.warnings)


class NoteAdded(Value):
    success: bool
    message: str
    timestamp: str
    category: str
    warnings: list[Warned] | None = None


class TaskChanges(Value):
    added: int
    removed: int
    replaced: bool


class TasksUpdated(Value):
    """Of a very long list the first and the last tasks; `omitted` is how many are between."""

    success: bool
    message: str
    tasks: list[str]
    changes: TaskChanges
    omitted: int | None = None
    warnings: list[Warned] | None = None


class DecisionLogged(Value):
    title: str
    timestamp: str
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings(f"Decision logged: {self.title}", self.warnings)


DECISION_MADE = "Decision Made"
ENDS_SHOWN = 100  # tasks at either end of a list in an answer


class ProgressTools(Family):
    """What was done, what is to do, and what was decided."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock

    @tool(Effect.WRITES)
    async def track_progress(
        self,
        call: Call,
        action: Annotated[str, Field("What was done, in short.", max_length=1_000, blank=False)],
        description: Annotated[
            str, Field("What was accomplished.", max_length=TEXT_LIMIT, blank=False)
        ],
        filename: Annotated[str, Field("Related file.", max_length=1_000)] | None = None,
        status: Annotated[Status, Field("Outcome.")] | None = None,
        update_active_context: Annotated[
            bool, Field("Add a session note too.", name="updateActiveContext")
        ] = True,
        store_id: StoreId | None = None,
    ) -> Tracked:
        """Add a line to progress.md, and to the session notes."""
        bank, at = await self._banks.existing(call, store_id), self._clock()
        user, work = self._banks.options.username, Work(action, description, filename, status)
        entry = progress_line(at, user, work)
        changes: dict[str, Change] = {PROGRESS: history_line(entry)}
        if update_active_context:
            changes[ACTIVE] = tracked_note(note_line(at, user, work))
        written = await edit(bank, changes)
        warnings = await _warnings(written, PROGRESS, [action, description, filename or ""])
        return Tracked(entry, iso(at), [file.name for file in written.values()], warnings)

    @tool(Effect.WRITES)
    async def add_progress_entry(
        self,
        call: Call,
        type: Annotated[EntryType, Field("Kind of change.")],
        summary: Annotated[str, Field("One line.", max_length=1_000, blank=False)],
        details: Annotated[str, Field("Free text.", max_length=TEXT_LIMIT)] | None = None,
        files: Annotated[list[Line], Field("Affected files.", max_items=ITEM_LIMIT)] | None = None,
        tags: Annotated[list[Line], Field("Labels.", max_items=ITEM_LIMIT)] | None = None,
        store_id: StoreId | None = None,
    ) -> EntryAdded:
        """Add an entry with details to progress.md."""
        bank, at = await self._banks.existing(call, store_id), self._clock()
        entry = ProgressEntry(type, one_line(summary), details, files or [], tags or [])
        change = HistoryEntry(at, entry)
        written = await edit(bank, {PROGRESS: change})
        texts = [summary, details or "", *entry.files, *entry.tags]
        warnings = await _warnings(written, PROGRESS, texts)
        return EntryAdded(True, change.id, type, entry.summary, iso(at), warnings)

    @tool(Effect.REPEATABLE)
    async def update_active_context(
        self,
        call: Call,
        tasks: Annotated[list[ListItem], Field("Ongoing tasks.", max_items=ITEM_LIMIT)]
        | None = None,
        issues: Annotated[list[ListItem], Field("Known issues.", max_items=ITEM_LIMIT)]
        | None = None,
        next_steps: Annotated[
            list[ListItem], Field("Next steps.", name="nextSteps", max_items=ITEM_LIMIT)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> ContextUpdated:
        """Replace lists of active-context.md; [] empties one."""
        bank = await self._banks.existing(call, store_id)
        given = [
            (titles, items)
            for titles, items in ((TASKS, tasks), (ISSUES, issues), (NEXT_STEPS, next_steps))
            if items is not None
        ]
        if not given:
            raise _nothing("tasks", "issues", "nextSteps")
        steps = [partial(_listed, titles=titles, items=items) for titles, items in given]
        with attempting("Error updating active context"):
            written = await edit(bank, {ACTIVE: in_turn(steps)})
        texts = [item for _, items in given for item in items]
        warnings = await _warnings(written, ACTIVE, texts)
        return ContextUpdated([titles[0] for titles, _ in given], warnings)

    @tool(Effect.WRITES)
    async def add_session_note(
        self,
        call: Call,
        note: Annotated[str, Field("Note text.", max_length=TEXT_LIMIT, blank=False)],
        category: Annotated[Category, Field("Kind of note.")] | None = None,
        store_id: StoreId | None = None,
    ) -> NoteAdded:
        """Add a note with its time to active-context.md."""
        bank, at = await self._banks.existing(call, store_id), self._clock()
        line = session_note(at, note, SIGNS[category] if category else None)
        written = await edit(bank, {ACTIVE: lambda text: noted(text, line)})
        warnings = await _warnings(written, ACTIVE, [note])
        return NoteAdded(True, "Session note added", iso(at), category or "none", warnings)

    @tool(Effect.REPEATABLE)
    async def update_tasks(
        self,
        call: Call,
        add: Annotated[
            list[ListItem], Field("To append; known ones are skipped.", max_items=ITEM_LIMIT)
        ]
        | None = None,
        remove: Annotated[
            list[ListItem], Field("Drop each task that contains one.", max_items=ITEM_LIMIT)
        ]
        | None = None,
        replace: Annotated[
            list[ListItem], Field("Whole new list; wins over the others.", max_items=ITEM_LIMIT)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> TasksUpdated:
        """Add to, remove from or replace the tasks of active-context.md."""
        bank = await self._banks.existing(call, store_id)
        wanted = TaskEdit(add, remove, replace)
        if wanted.is_empty:
            raise _nothing("add", "remove", "replace")
        outcomes: list[TaskOutcome] = []

        def change(text: str) -> str:
            outcomes.append(edited_tasks(text, wanted))
            return outcomes[-1].text

        written = await edit(bank, {ACTIVE: in_turn([change])})
        outcome = outcomes[-1]
        message = "Tasks updated" if written else "Nothing changed: the list was as asked already."
        seen = written or {ACTIVE: FileText(ACTIVE, outcome.text, "")}
        about = await _warnings(seen, ACTIVE, [*(add or ()), *(replace or ())])
        changes = TaskChanges(outcome.added, outcome.removed, replace is not None)
        tasks, omitted = _ends(outcome.tasks)
        warnings = [*outcome.warnings, *(about or ())]
        return TasksUpdated(True, message, tasks, changes, omitted, warnings or None)

    @tool(Effect.WRITES)
    async def log_decision(
        self,
        call: Call,
        title: Annotated[str, Field("Title.", max_length=1_000, blank=False)],
        context: Annotated[str, Field("Why it came up.", max_length=TEXT_LIMIT, blank=False)],
        decision: Annotated[str, Field("What was decided.", max_length=TEXT_LIMIT, blank=False)],
        alternatives: Annotated[
            list[Text], Field("Options considered.", max_items=ITEM_LIMIT, one_or_more=True)
        ]
        | None = None,
        consequences: Annotated[
            list[Text], Field("Effects.", max_items=ITEM_LIMIT, one_or_more=True)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> DecisionLogged:
        """Add a decision to decision-log.md, and a line to progress.md."""
        bank, at = await self._banks.existing(call, store_id), self._clock()
        user = self._banks.options.username
        taken = Decision(one_line(title), context, decision, alternatives or [], consequences or [])
        work = Work(DECISION_MADE, taken.title)
        written = await edit(
            bank,
            {
                DECISIONS: decided(decision_block(at, user, taken)),
                PROGRESS: history_line(progress_line(at, user, work)),
                ACTIVE: tracked_note(note_line(at, user, work)),
            },
        )
        texts = [title, context, decision, *taken.alternatives, *taken.consequences]
        warnings = await _warnings(written, DECISIONS, texts)
        names = [file.name for file in written.values()]
        return DecisionLogged(taken.title, iso(at), names, warnings)


async def _warnings(
    written: Mapping[str, FileText], name: str, texts: Iterable[str]
) -> list[Warned] | None:
    """About the files as they are now, and about secrets in the texts for one of them."""
    edited = {file.name: file.text for file in written.values()}
    found = await aside(sum(map(len, edited.values())), lambda: edit_warnings(edited))
    return [*found, *(await scan_warnings({name: "\n".join(texts)}) or ())] or None


def _ends(tasks: list[str]) -> tuple[list[str], int | None]:
    shown = [presentable(task) for task in tasks]
    omitted = len(shown) - 2 * ENDS_SHOWN
    if omitted <= 0:
        return shown, None
    return [*shown[:ENDS_SHOWN], *shown[-ENDS_SHOWN:]], omitted


def _listed(text: str, titles: tuple[str, ...], items: list[str]) -> str:
    return with_list(text, titles, [item.strip() for item in items])


def _nothing(*arguments: str) -> InvalidInput:
    listed = ", ".join(f"`{name}`" for name in arguments)
    return InvalidInput("There is nothing to do.", hint=f"Give at least one of {listed}.")
