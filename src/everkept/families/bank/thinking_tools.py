"""Tools for thinking in steps, and for saving the result in the bank's files."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock, format_iso
from everkept.errors import InvalidInput
from everkept.families.bank.bank_entries import (
    MAX_LIST_ITEMS,
    MAX_TEXT_CHARACTERS,
    THOUGHT_SIGN,
    Decision,
    HistoryEntry,
    ListItem,
    ProgressEntry,
    TaskEdit,
    TaskOutcome,
    build_decision_change,
    combine_changes,
    edit_tasks,
    extend_items,
    format_numbered_decision,
    format_session_note,
    insert_session_note,
)
from everkept.families.bank.bank_files import (
    TextChange,
    edit,
    find_edit_warnings,
    find_secret_warnings,
    run_in_thread_if_large,
)
from everkept.families.bank.banks import Banks
from everkept.families.bank.markdown_sections import (
    NEXT_STEP_TITLES,
    list_sections,
    list_titled_items,
    replace_list,
    to_one_line,
)
from everkept.families.bank.model import ACTIVE, DECISIONS, PROGRESS, StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value, field

MAX_TRAINS = 200  # of all clients; the least recently used is dropped first
MAX_BRANCHES = 100


class ThoughtTrain(Value, frozen=False):
    length: int = 0
    branches: dict[str, None] = field(default_factory=dict[str, None])


class ThoughtTrains:
    """Trains of thought by session and client-given name."""

    def __init__(self, most: int = MAX_TRAINS) -> None:
        self._most = most
        self._trains: OrderedDict[tuple[str, str | None], ThoughtTrain] = OrderedDict()

    def add_step(self, session: str, name: str | None, branch: str | None) -> ThoughtTrain:
        """Add a thought. The oldest branches are dropped beyond MAX_BRANCHES."""
        train = self._trains.setdefault((session, name), ThoughtTrain())
        self._trains.move_to_end((session, name))
        train.length += 1
        if branch is not None:
            train.branches[branch] = None
            if len(train.branches) > MAX_BRANCHES:
                del train.branches[next(iter(train.branches))]
        while len(self._trains) > self._most:
            self._trains.popitem(last=False)
        return train

    def forget(self, session: str, name: str | None) -> int:
        """Delete one train of thought, or all of the session if no name is given. Return how many were deleted."""
        keys = [key for key in self._trains if key[0] == session and name in (None, key[1])]
        for key in keys:
            del self._trains[key]
        return len(keys)


_NUMBERED_ITEM = re.compile(r"(\d{1,9})\.\s")


class ThinkingOutcome(Value):
    """The result of a thinking session, to be saved."""

    summary: str
    session_id: str | None = None
    decision: Decision | None = None
    tasks: TaskEdit | None = None
    next_steps: Sequence[str] = ()
    progress_entry: ProgressEntry | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Return all written texts, by file."""
        context = [self.summary, *self.next_steps]
        decided: list[str] = []
        done: list[str] = []
        if self.tasks:
            context += [*(self.tasks.add or ()), *(self.tasks.replace or ())]
        if taken := self.decision:
            decided = [taken.title, taken.context, taken.decision]
            decided += [*taken.alternatives, *taken.consequences]
        if entry := self.progress_entry:
            done = [entry.summary, entry.details or "", *entry.files, *entry.tags]
        written = {ACTIVE: context, DECISIONS: decided, PROGRESS: done}
        return {name: "\n".join(texts) for name, texts in written.items()}


class OutcomeWriter:
    """Edits that save a result. The changes of the tasks are known after the edits."""

    def __init__(self, at: int, user: str, outcome: ThinkingOutcome) -> None:
        self._at = at
        self._user = user
        self._outcome = outcome
        self._tasks: TaskOutcome | None = None
        self._texts: dict[str, str] = {}

    def build_changes(self) -> dict[str, TextChange]:
        outcome = self._outcome
        changes: dict[str, TextChange] = {
            ACTIVE: combine_changes([self._add_tasks, self._add_next_steps, self._add_note])
        }
        if outcome.decision:
            changes[DECISIONS] = self._add_decision
        if outcome.progress_entry:
            changes[PROGRESS] = HistoryEntry(self._at, self._user, outcome.progress_entry)
        return {name: self._track_change(name, change) for name, change in changes.items()}

    def _track_change(self, name: str, change: TextChange) -> TextChange:
        """Wrap a change to remember the new text for the warnings."""

        def noticed(text: str | None) -> str | None:
            edited = change(text)
            self._texts[name] = edited or text or ""
            return edited

        return noticed

    def list_actions(self) -> list[str]:
        outcome, done = self._outcome, ["Session note added to active-context.md"]
        if outcome.next_steps:
            done.append(f"Next steps updated ({format_count(len(outcome.next_steps), 'item')})")
        if self._tasks:
            count = f"{self._tasks.added} added, {self._tasks.removed} removed"
            done.append(f"Tasks updated ({count})")
        if outcome.decision:
            done.append(f"Decision logged: {to_one_line(outcome.decision.title)}")
        if outcome.progress_entry:
            done.append(f"Progress entry added: {to_one_line(outcome.progress_entry.summary)}")
        return done

    async def find_warnings(self) -> list[ToolWarning]:
        size = sum(map(len, self._texts.values()))
        found = await run_in_thread_if_large(size, lambda: find_edit_warnings(self._texts))
        return [*(self._tasks.warnings if self._tasks else ()), *found]

    def _add_tasks(self, text: str) -> str:
        edit = self._outcome.tasks
        if edit is None or edit.is_empty:
            return text
        self._tasks = edit_tasks(text, edit)
        return self._tasks.text

    def _add_next_steps(self, text: str) -> str:
        steps = self._outcome.next_steps
        if not steps:
            return text
        wanted = extend_items(list_titled_items(text, NEXT_STEP_TITLES), steps)
        return replace_list(text, NEXT_STEP_TITLES, wanted, in_place=True)

    def _add_note(self, text: str) -> str:
        name = self._outcome.session_id
        first, *rest = self._outcome.summary.strip().splitlines()
        tagged = f"{first} [session:{to_one_line(name)}]" if name else first
        line = format_session_note(self._at, self._user, "\n".join([tagged, *rest]), THOUGHT_SIGN)
        return insert_session_note(text, line)

    def _add_decision(self, text: str | None) -> str | None:
        assert self._outcome.decision is not None
        numbers = [
            int(found[1])
            for section in list_sections(text or "")
            if section.level == 2 and (found := _NUMBERED_ITEM.match(section.title))
        ]
        number = max(numbers, default=0) + 1
        return build_decision_change(format_numbered_decision(self._at, number, self._outcome.decision))(text)


STATELESS_NOTICE = "This connection is stateless, so earlier thoughts are not counted."

ThinkingSessionId = Annotated[
    str, Field("Any id that separates parallel tasks", name="sessionId", max_length=200, blank=False)
]


class ThoughtStatus(Value):
    """Progress of a train of thought, or the confirmation of a reset."""

    reset: bool | None = None
    cleared: int | None = None
    thought_number: Annotated[int | None, Field(name="thoughtNumber")] = None
    total_thoughts: Annotated[int | None, Field(name="totalThoughts")] = None
    next_thought_needed: Annotated[bool | None, Field(name="nextThoughtNeeded")] = None
    branches: list[str] | None = None
    thought_history_length: Annotated[int | None, Field(name="thoughtHistoryLength")] = None
    session_id: Annotated[str | None, Field(name="sessionId")] = None
    note: str | None = None


class FinalizedThinking(Value):
    success: bool
    actions: list[str]
    timestamp: str
    session_id: Annotated[str | None, Field(name="sessionId")] = None
    warnings: list[ToolWarning] | None = None


class ThinkingTools(ToolFamily):
    """Tools for reasoning in steps. Only the number of steps is remembered."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock
        self._trains = ThoughtTrains()

    @tool(Effect.SESSION_ONLY, adds_each_time=True)
    async def sequential_thinking(
        self,
        call: ToolCall,
        thought: Annotated[str, Field("Text of the step; not stored", max_length=MAX_TEXT_CHARACTERS)] | None = None,
        next_thought_needed: Annotated[bool, Field("true: more steps follow", name="nextThoughtNeeded")] | None = None,
        thought_number: Annotated[int, Field("Number of this step", name="thoughtNumber", ge=1, le=1_000_000)]
        | None = None,
        total_thoughts: Annotated[int, Field("Estimated number of steps", name="totalThoughts", ge=1, le=1_000_000)]
        | None = None,
        is_revision: Annotated[bool, Field("true: revises an earlier step", name="isRevision")] = False,
        revises_thought: Annotated[int, Field("Number of the revised step", name="revisesThought", ge=1)] | None = None,
        branch_from_thought: Annotated[int, Field("Number of the step to branch from", name="branchFromThought", ge=1)]
        | None = None,
        branch_id: Annotated[str, Field("Name of the branch", name="branchId", max_length=200, blank=False)]
        | None = None,
        needs_more_thoughts: Annotated[
            bool, Field("true: more steps are needed than estimated", name="needsMoreThoughts")
        ] = False,
        session_id: ThinkingSessionId | None = None,
        reset: Annotated[bool, Field("true: clear this session, or all if `sessionId` is omitted")] = False,
    ) -> ThoughtStatus:
        """Record one numbered reasoning step, or reset."""
        if reset:
            cleared = self._trains.forget(call.session.id, session_id)
            return ThoughtStatus(reset=True, cleared=cleared, session_id=session_id)
        given = {
            "thought": thought,
            "nextThoughtNeeded": next_thought_needed,
            "thoughtNumber": thought_number,
            "totalThoughts": total_thoughts,
        }
        if missing := [f"`{name}`" for name, value in given.items() if value is None]:
            raise InvalidInput(f"Pass {', '.join(missing)}.", hint="To start over, set `reset` to true.")
        if is_revision and revises_thought is None:
            hint = "Pass the number of the revised step."
            raise InvalidInput("`isRevision` requires `revisesThought`.", hint=hint, argument="revisesThought")
        number, total = thought_number or 1, max(total_thoughts or 1, thought_number or 1)
        branch = branch_id if branch_from_thought is not None else None
        train = self._trains.add_step(call.session.id, session_id, branch)
        return ThoughtStatus(
            thought_number=number,
            total_thoughts=total + 1 if needs_more_thoughts and total == number else total,
            next_thought_needed=next_thought_needed,
            branches=list(train.branches),
            thought_history_length=train.length,
            session_id=session_id,
            note=None if call.session.stateful else STATELESS_NOTICE,
        )

    @tool(Effect.WRITES)
    async def finalize_thinking_session(
        self,
        call: ToolCall,
        summary: Annotated[str, Field("Result of the thinking", max_length=MAX_TEXT_CHARACTERS, blank=False)],
        decision: Annotated[Decision, Field("Entry for decision-log.md")] | None = None,
        tasks: Annotated[TaskEdit, Field("Changes to the task list")] | None = None,
        next_steps: Annotated[list[ListItem], Field("Next steps to add", name="nextSteps", max_items=MAX_LIST_ITEMS)]
        | None = None,
        progress_entry: Annotated[ProgressEntry, Field("Entry for progress.md", name="progressEntry")] | None = None,
        session_id: ThinkingSessionId | None = None,
        store_id: StoreId | None = None,
    ) -> FinalizedThinking:
        """Save the result of a thinking session to the bank's files."""
        bank, at = await self._banks.require_bank(call, store_id), self._clock()
        outcome = ThinkingOutcome(summary, session_id, decision, tasks, next_steps or [], progress_entry)
        finalizing = OutcomeWriter(at, await self._banks.find_username(), outcome)
        await edit(bank, finalizing.build_changes())
        secrets = await find_secret_warnings(outcome.texts)
        warnings = [*(await finalizing.find_warnings()), *(secrets or ())]
        return FinalizedThinking(True, finalizing.list_actions(), format_iso(at), session_id, warnings or None)
