"""The tools for modes, and for bringing the bank up to date."""

from dataclasses import dataclass, replace
from typing import Annotated

from recollect.core.sessions import Call
from recollect.core.text import clipped
from recollect.errors import InvalidInput, Refused
from recollect.families.bank.banks import Banks, exists
from recollect.families.bank.model import Mode, StoreId
from recollect.families.bank.modes import MODE_TOOLS, mode_of
from recollect.families.bank.rules import Found, rules_of
from recollect.families.bank.sentences import with_warnings
from recollect.families.bank.triggers import asks_for_update
from recollect.tools.schema import Field
from recollect.tools.tool import Effect, Family, Warned, tool

UPDATING = (
    "[MEMORY BANK: UPDATING] UMB mode activated. You can temporarily update Memory Bank files."
)
ACTIVE_AGAIN = (
    "[MEMORY BANK: ACTIVE] UMB mode deactivated. Memory Bank updates have been completed."
)
INVALID = 'Invalid UMB command. Use "Update Memory Bank" or "UMB".'
STATELESS_MODE = (
    "This connection keeps no state: mode {mode} holds for this answer alone. Start the server "
    "with --mode {mode} to stay in it."
)
STATELESS_UPDATE = "This connection keeps no state: there is nothing to complete afterwards."


@dataclass(frozen=True, slots=True)
class ModeView:
    """A mode with what it asks for; the sentence depends on what was called."""

    message: str
    mode: Mode
    status: str
    umb_active: Annotated[bool, Field(name="umbActive")]
    instructions: list[str]
    tools: list[str]
    files_to_read: Annotated[list[str], Field(name="filesToRead")]
    files_to_update: Annotated[list[str], Field(name="filesToUpdate")]
    rules_file: Annotated[str | None, Field(name="rulesFile")] = None
    note: str | None = None
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        noted = f"{self.message}\n{self.note}" if self.note else self.message
        return with_warnings(noted, self.warnings)


class ModeTools(Family):
    """How the assistant works with the bank in this session."""

    def __init__(self, banks: Banks) -> None:
        self._banks = banks

    @tool(Effect.SELECTS)
    async def switch_mode(
        self,
        call: Call,
        mode: Annotated[Mode, Field("To switch to; omit to query.")] | None = None,
        umb: Annotated[bool, Field("Start or end an update of the bank; goes before `mode`.")]
        | None = None,
        umb_command: Annotated[
            str, Field("Words to check when `umb` is true.", name="umbCommand", max_length=10_000)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> ModeView:
        """Switch the mode of working, or show it; with `umb`, update the memory bank."""
        if umb is None and umb_command is not None:
            raise InvalidInput(
                "`umbCommand` means nothing without `umb`.", hint="Set `umb` to true."
            )
        if umb is not None:
            view = await (
                self._start(call, umb_command, store_id) if umb else self._end(call, store_id)
            )
            passed_over = f"The mode stays {view.mode}: `umb` goes before `mode`."
            return replace(view, note=passed_over) if mode not in (None, view.mode) else view
        if mode is None:
            return await self.get_current_mode(call, store_id)
        return await self._switch(call, mode, store_id)

    @tool()
    async def get_current_mode(self, call: Call, store_id: StoreId | None = None) -> ModeView:
        """Show the mode, its instructions and whether there is a bank."""
        view = await self._view(call, store_id)
        shown = "Yes" if view.umb_active else "No"
        return replace(
            view,
            message=f"Current mode: {view.mode}\nMemory Bank status: {view.status}\n"
            f"UMB mode active: {shown}",
        )

    @tool(Effect.SELECTS)
    async def process_umb_command(
        self,
        call: Call,
        command: Annotated[
            str, Field("E.g. UMB or Update Memory Bank.", max_length=10_000, blank=False)
        ],
        store_id: StoreId | None = None,
    ) -> ModeView:
        """Begin to update the memory bank, when the words ask for it."""
        return await self._start(call, command, store_id)

    @tool(Effect.SELECTS)
    async def complete_umb(self, call: Call, store_id: StoreId | None = None) -> ModeView:
        """End the update of the memory bank."""
        return await self._end(call, store_id)

    async def _switch(self, call: Call, mode: Mode, store_id: str | None) -> ModeView:
        view = await self._view(call, store_id, mode)
        if not call.session.stateful:
            return replace(view, message=STATELESS_MODE.format(mode=mode))
        call.session.mode = mode
        return replace(view, message=f"Successfully switched to mode {mode}.")

    async def _start(self, call: Call, command: str | None, store_id: str | None) -> ModeView:
        """Without a command nothing needs to be checked: the call itself asks for it."""
        bank = await self._banks.existing(call, store_id)
        found = await rules_of(bank, self._mode(call))
        if command is not None and not asks_for_update(command, found.rules.trigger):
            raise InvalidInput(
                INVALID, argument="command", value=clipped(command), trigger=found.rules.trigger
            )
        call.session.updates_bank = call.session.stateful
        view = _view(call, found, "ACTIVE")
        listed = "\n".join(f"- {line}" for line in found.rules.umb)
        files = ", ".join(found.rules.files_to_update)
        return replace(
            view,
            message=f"{UPDATING}\nFiles to update: {files}\n{listed}",
            instructions=list(found.rules.umb),
            note=None if call.session.stateful else STATELESS_UPDATE,
        )

    async def _end(self, call: Call, store_id: str | None) -> ModeView:
        if not call.session.updates_bank:
            hint = 'process_umb_command with "UMB" activates it.'
            raise Refused(
                "UMB mode is not active.", hint=hint if call.session.stateful else STATELESS_UPDATE
            )
        view = await self._view(call, store_id)
        call.session.updates_bank = False
        return replace(view, message=ACTIVE_AGAIN, umb_active=False)

    async def _view(self, call: Call, store_id: str | None, mode: Mode | None = None) -> ModeView:
        bank = await self._banks.chosen(call, store_id)
        is_there = bank is not None and await exists(bank)
        found = await rules_of(bank, mode or self._mode(call))
        return _view(call, found, "ACTIVE" if is_there else "INACTIVE")

    def _mode(self, call: Call) -> Mode:
        return mode_of(call.session.mode, self._banks.options)


def _view(call: Call, found: Found, status: str) -> ModeView:
    rules = found.rules
    return ModeView(
        message="",
        mode=rules.mode,
        status=status,
        umb_active=call.session.updates_bank,
        instructions=list(rules.general),
        tools=list(MODE_TOOLS[rules.mode]),
        files_to_read=list(rules.files_to_read),
        files_to_update=list(rules.files_to_update),
        rules_file=rules.source,
        warnings=found.warnings or None,
    )
