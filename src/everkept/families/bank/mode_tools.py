"""The tools for modes, and for bringing the bank up to date."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

from everkept.core.sessions import Call
from everkept.core.text import clipped
from everkept.errors import InvalidInput, Refused, Unavailable
from everkept.families.bank.banks import Banks, exists
from everkept.families.bank.file_text import with_warnings
from everkept.families.bank.mode_rules import END, Found, rules_of
from everkept.families.bank.model import Mode, StoreId
from everkept.families.bank.modes import MODE_TOOLS, TOOLS, Offered, mode_of
from everkept.families.bank.update_triggers import asks_for_update, own_words
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value, replace

UPDATING = (
    "[MEMORY BANK: UPDATING] UMB mode activated. You can temporarily update Memory Bank files."
)
ACTIVE_AGAIN = (
    "[MEMORY BANK: ACTIVE] UMB mode deactivated. Memory Bank updates have been completed."
)
INVALID = "Invalid UMB command."
USUAL_WORDS = 'Use "Update Memory Bank" or "UMB".'
MOST_TYPICAL = 8  # tools named in the text of an answer
STATELESS_MODE = (
    "This connection keeps no state: mode {mode} holds for this answer alone. Start the server "
    "with --mode {mode} to stay in it."
)
_NAME = re.compile(r"[a-z]+(?:_[a-z]+)+")
STATELESS_UPDATE = "This connection keeps no state: there is nothing to complete afterwards."


class ModeView(Value):
    """A mode with what it asks for; the text says it too, as not every client passes on facts."""

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
        lines = [self.message, *self._guidance(), *([self.note] if self.note else ())]
        return with_warnings("\n".join(lines), self.warnings)

    def _guidance(self) -> list[str]:
        told = ["", "What to do:", *_listed(self.instructions)]
        typical = ", ".join(self.tools[:MOST_TYPICAL])
        return [*told, f"Typical tools: {typical}"] if typical else told


class UpdateView(ModeView):
    """The same about an update of the bank, whose message says what to do."""

    def _guidance(self) -> list[str]:
        return []


class ModeTools(Family):
    """How the assistant works with the bank in this session.

    Only tools that are `offered` are recommended; without it, all of them.
    """

    def __init__(self, banks: Banks, offered: Offered | None = None) -> None:
        self._banks = banks
        self._offered = offered

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
            if mode in (None, view.mode):
                return view
            passed_over = f"The mode stays {view.mode}: `umb` goes before `mode`."
            return replace(view, note=" ".join(filter(None, [passed_over, view.note])))
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
                f"{INVALID} {_words_that_count(found)}",
                argument="command",
                value=clipped(command),
                trigger=found.rules.trigger,
            )
        stateful = call.session.stateful
        call.session.updates_bank = stateful
        steps = [line for line in found.rules.umb if stateful or line != END]
        files = ", ".join(found.rules.files_to_update)
        return replace(
            self._viewed(UpdateView, call, found, "ACTIVE"),
            message="\n".join([UPDATING, f"Files to update: {files}", *_listed(steps)]),
            instructions=steps,
            note=None if stateful else STATELESS_UPDATE,
        )

    async def _end(self, call: Call, store_id: str | None) -> ModeView:
        found, status = await self._found(call, store_id, self._mode(call))
        if not call.session.updates_bank:
            hint = f"process_umb_command begins an update. {_words_that_count(found)}"
            raise Refused(
                "UMB mode is not active.", hint=hint if call.session.stateful else STATELESS_UPDATE
            )
        call.session.updates_bank = False
        return replace(self._viewed(UpdateView, call, found, status), message=ACTIVE_AGAIN)

    async def _view(self, call: Call, store_id: str | None, mode: Mode | None = None) -> ModeView:
        found, status = await self._found(call, store_id, mode or self._mode(call))
        return self._viewed(ModeView, call, found, status)

    async def _found(self, call: Call, store_id: str | None, mode: Mode) -> tuple[Found, str]:
        """A bank that cannot be reached is no reason to say nothing: the built-in rules count."""
        try:
            bank = await self._banks.chosen(call, store_id)
            is_there = bank is not None and await exists(bank)
        except (Refused, Unavailable) as error:
            found = await rules_of(None, mode)
            message = f"The bank cannot be reached, so the built-in rules count. {error}"
            warned = Warned("bank_unreachable", message)
            return Found(found.rules, [warned, *found.warnings]), "INACTIVE"
        return await rules_of(bank, mode), "ACTIVE" if is_there else "INACTIVE"

    def _viewed(self, kind: type[ModeView], call: Call, found: Found, status: str) -> ModeView:
        rules, offered = found.rules, self._names()
        general = rules.general if rules.source else _possible(rules.general, offered)
        return kind(
            message="",
            mode=rules.mode,
            status=status,
            umb_active=call.session.updates_bank,
            instructions=list(general),
            tools=[name for name in MODE_TOOLS[rules.mode] if name in offered],
            files_to_read=list(rules.files_to_read),
            files_to_update=list(rules.files_to_update),
            rules_file=rules.source,
            warnings=found.warnings or None,
        )

    def _names(self) -> frozenset[str]:
        if self._offered is None:
            return TOOLS
        return frozenset(item.name for item in self._offered())

    def _mode(self, call: Call) -> Mode:
        return mode_of(call.session.mode, self._banks.options)


def _possible(lines: Iterable[str], offered: frozenset[str]) -> list[str]:
    """Without those that name a tool of the bank which is not offered."""
    return [line for line in lines if not TOOLS.intersection(_NAME.findall(line)) - offered]


def _words_that_count(found: Found) -> str:
    """Those that ask for an update here."""
    own = own_words(found.rules.trigger)
    return USUAL_WORDS if own is None else f"{found.rules.source} has words of its own: {own}"


def _listed(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]
