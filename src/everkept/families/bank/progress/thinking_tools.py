"""The tools for thinking in steps, and for keeping what came out of it."""

from collections.abc import Mapping
from typing import Annotated, Any

from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import InvalidInput
from everkept.families.bank.banks import Banks
from everkept.families.bank.files.bank_files import edit
from everkept.families.bank.model import StoreId
from everkept.families.bank.progress.finalizing import Finalizing, Outcome
from everkept.families.bank.progress.thinking import Trains
from everkept.families.bank.text.entries import ITEM_LIMIT, TEXT_LIMIT, Decision, ProgressEntry
from everkept.families.bank.text.secret_scan import scan_warnings
from everkept.families.bank.text.tasks import ListItem, TaskEdit
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value

FORGETFUL = "This connection keeps no state: earlier thoughts are not counted."

TrainName = Annotated[
    str, Field("Keeps parallel tasks apart.", name="sessionId", max_length=200, blank=False)
]


class Thought(Value):
    """How far a train of thought is, or that it was cleared."""

    reset: bool | None = None
    cleared: int | None = None
    thought_number: Annotated[int | None, Field(name="thoughtNumber")] = None
    total_thoughts: Annotated[int | None, Field(name="totalThoughts")] = None
    next_thought_needed: Annotated[bool | None, Field(name="nextThoughtNeeded")] = None
    branches: list[str] | None = None
    thought_history_length: Annotated[int | None, Field(name="thoughtHistoryLength")] = None
    session_id: Annotated[str | None, Field(name="sessionId")] = None
    note: str | None = None


class Finalized(Value):
    success: bool
    actions: list[str]
    timestamp: str
    session_id: Annotated[str | None, Field(name="sessionId")] = None
    warnings: list[Warned] | None = None


class ThinkingTools(Family):
    """Steps of reasoning; only their number is remembered."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock
        self._trains = Trains()

    @tool(Effect.SELECTS, adds_each_time=True)
    async def sequential_thinking(
        self,
        call: Call,
        thought: Annotated[str, Field("The step; it is not stored.", max_length=TEXT_LIMIT)]
        | None = None,
        next_thought_needed: Annotated[bool, Field("More to come.", name="nextThoughtNeeded")]
        | None = None,
        thought_number: Annotated[
            int, Field("Number of the step.", name="thoughtNumber", ge=1, le=1_000_000)
        ]
        | None = None,
        total_thoughts: Annotated[
            int, Field("How many it may become.", name="totalThoughts", ge=1, le=1_000_000)
        ]
        | None = None,
        is_revision: Annotated[bool, Field("Revises a step.", name="isRevision")] = False,
        revises_thought: Annotated[int, Field("Step that is revised.", name="revisesThought", ge=1)]
        | None = None,
        branch_from_thought: Annotated[
            int, Field("Step to branch off.", name="branchFromThought", ge=1)
        ]
        | None = None,
        branch_id: Annotated[str, Field("Its name.", name="branchId", max_length=200, blank=False)]
        | None = None,
        needs_more_thoughts: Annotated[
            bool, Field("Raise the total.", name="needsMoreThoughts")
        ] = False,
        session_id: TrainName | None = None,
        reset: Annotated[bool, Field("Clear one session, or all without `sessionId`.")] = False,
    ) -> Thought:
        """Record one numbered step of reasoning, or start over."""
        if reset:
            cleared = self._trains.forget(call.session.id, session_id)
            return Thought(reset=True, cleared=cleared, session_id=session_id)
        given = {
            "thought": thought,
            "nextThoughtNeeded": next_thought_needed,
            "thoughtNumber": thought_number,
            "totalThoughts": total_thoughts,
        }
        _check_given(given)
        if is_revision and revises_thought is None:
            raise InvalidInput("`isRevision` needs `revisesThought`.", argument="revisesThought")
        number, total = thought_number or 1, max(total_thoughts or 1, thought_number or 1)
        branch = branch_id if branch_from_thought is not None else None
        train = self._trains.step(call.session.id, session_id, branch)
        return Thought(
            thought_number=number,
            total_thoughts=total + 1 if needs_more_thoughts and total == number else total,
            next_thought_needed=next_thought_needed,
            branches=list(train.branches),
            thought_history_length=train.length,
            session_id=session_id,
            note=None if call.session.stateful else FORGETFUL,
        )

    @tool(Effect.WRITES)
    async def finalize_thinking_session(
        self,
        call: Call,
        summary: Annotated[str, Field("What came out.", max_length=TEXT_LIMIT, blank=False)],
        decision: Annotated[Decision, Field("For decision-log.md.")] | None = None,
        tasks: Annotated[TaskEdit, Field("As in update_tasks.")] | None = None,
        next_steps: Annotated[
            list[ListItem], Field("To append.", name="nextSteps", max_items=ITEM_LIMIT)
        ]
        | None = None,
        progress_entry: Annotated[ProgressEntry, Field("For progress.md.", name="progressEntry")]
        | None = None,
        session_id: TrainName | None = None,
        store_id: StoreId | None = None,
    ) -> Finalized:
        """Write what came out of thinking into the bank's files."""
        bank, at = await self._banks.existing(call, store_id), self._clock()
        outcome = Outcome(summary, session_id, decision, tasks, next_steps or [], progress_entry)
        finalizing = Finalizing(at, outcome)
        await edit(bank, finalizing.changes())
        secrets = await scan_warnings(outcome.texts)
        warnings = [*(await finalizing.warnings()), *(secrets or ())]
        return Finalized(True, finalizing.actions(), iso(at), session_id, warnings or None)


def _check_given(values: Mapping[str, Any]) -> None:
    missing = [f"`{name}`" for name, value in values.items() if value is None]
    if missing:
        listed = ", ".join(missing)
        raise InvalidInput(f"{listed} must be given.", hint="Or set `reset` to true.")
