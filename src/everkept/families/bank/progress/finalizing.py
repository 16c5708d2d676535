"""The outcome of a session of thinking, as edits of the bank's files."""

import re
from collections.abc import Sequence

from everkept.families.bank.aside import aside
from everkept.families.bank.files.bank_files import Change
from everkept.families.bank.model import ACTIVE, DECISIONS, PROGRESS
from everkept.families.bank.progress.journal import HistoryEntry, decided, in_turn, noted
from everkept.families.bank.text.edit_warnings import edit_warnings
from everkept.families.bank.text.entries import (
    THOUGHT,
    Decision,
    ProgressEntry,
    numbered_decision_block,
    session_note,
)
from everkept.families.bank.text.headings import NEXT_STEPS
from everkept.families.bank.text.lists import listed, with_list
from everkept.families.bank.text.markdown import one_line, sections
from everkept.families.bank.text.tasks import TaskEdit, TaskOutcome, edited_tasks, extended
from everkept.tools.tool import Warned
from everkept.values import Value

_NUMBERED = re.compile(r"(\d{1,9})\.\s")


class Outcome(Value):
    """What is to be kept of it."""

    summary: str
    session_id: str | None = None
    decision: Decision | None = None
    tasks: TaskEdit | None = None
    next_steps: Sequence[str] = ()
    progress_entry: ProgressEntry | None = None

    @property
    def texts(self) -> dict[str, str]:
        """Everything of it that is written, by the file that it goes to."""
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


class Finalizing:
    """What it did to the tasks is known once the edits were made."""

    def __init__(self, at: int, outcome: Outcome) -> None:
        self._at = at
        self._outcome = outcome
        self._tasks: TaskOutcome | None = None
        self._texts: dict[str, str] = {}

    def changes(self) -> dict[str, Change]:
        outcome = self._outcome
        changes: dict[str, Change] = {
            ACTIVE: in_turn([self._with_tasks, self._with_next_steps, self._with_note])
        }
        if outcome.decision:
            changes[DECISIONS] = self._with_decision
        if outcome.progress_entry:
            changes[PROGRESS] = HistoryEntry(self._at, outcome.progress_entry)
        return {name: self._noticed(name, change) for name, change in changes.items()}

    def _noticed(self, name: str, change: Change) -> Change:
        """Keeps what came of it, for the warnings."""

        def noticed(text: str | None) -> str | None:
            edited = change(text)
            self._texts[name] = edited or text or ""
            return edited

        return noticed

    def actions(self) -> list[str]:
        outcome, done = self._outcome, ["Session note added to active-context.md"]
        if outcome.next_steps:
            done.append(f"Next steps updated ({len(outcome.next_steps)} items)")
        if self._tasks:
            count = f"{self._tasks.added} added, {self._tasks.removed} removed"
            done.append(f"Tasks updated ({count})")
        if outcome.decision:
            done.append(f"Decision logged: {one_line(outcome.decision.title)}")
        if outcome.progress_entry:
            done.append(f"Progress entry added: {one_line(outcome.progress_entry.summary)}")
        return done

    async def warnings(self) -> list[Warned]:
        size = sum(map(len, self._texts.values()))
        found = await aside(size, lambda: edit_warnings(self._texts))
        return [*(self._tasks.warnings if self._tasks else ()), *found]

    def _with_tasks(self, text: str) -> str:
        edit = self._outcome.tasks
        if edit is None or edit.is_empty:
            return text
        self._tasks = edited_tasks(text, edit)
        return self._tasks.text

    def _with_next_steps(self, text: str) -> str:
        steps = self._outcome.next_steps
        if not steps:
            return text
        wanted = extended(listed(text, NEXT_STEPS), steps)
        return with_list(text, NEXT_STEPS, wanted, in_place=True)

    def _with_note(self, text: str) -> str:
        name = self._outcome.session_id
        first, *rest = self._outcome.summary.strip().splitlines()
        tagged = f"{first} [session:{one_line(name)}]" if name else first
        return noted(text, session_note(self._at, "\n".join([tagged, *rest]), THOUGHT))

    def _with_decision(self, text: str | None) -> str | None:
        assert self._outcome.decision is not None
        numbers = [
            int(found[1])
            for section in sections(text or "")
            if section.level == 2 and (found := _NUMBERED.match(section.title))
        ]
        number = max(numbers, default=0) + 1
        return decided(numbered_decision_block(self._at, number, self._outcome.decision))(text)
