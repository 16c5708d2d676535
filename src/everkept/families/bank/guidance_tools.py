"""The tools that guide an assistant: modes, instructions, a diagnosis, and current file names."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from everkept.core.sessions import Call
from everkept.core.text import clipped
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError, InvalidInput, Refused, Unavailable
from everkept.families.bank.bank_files import with_warnings
from everkept.families.bank.banks import Banks, exists
from everkept.families.bank.core_files import migrate_names
from everkept.families.bank.mode_rules import END, Found, asks_for_update, own_words, rules_of
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    DEFAULT_MODE,
    MODE_TOOLS,
    MODES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    TODAYS_NAMES,
    TOOLS,
    Mode,
    Offered,
    StoreId,
    mode_of,
)
from everkept.tools.schema import Field, to_json
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


OURS = "EVERKEPT_"  # beginning of the variables whose names may be told; values never are


class Surroundings(Value):
    """Where the program runs; `variables` are names of what is set in its environment."""

    folder: str  # the working folder, which need not be the one the program was started in
    variables: tuple[str, ...] = ()
    cwd: str | None = None


class Guide(Value):
    instructions: str

    @property
    def sentence(self) -> str:
        return self.instructions


class BankFacts(Value):
    directory: str | None
    project_path: Annotated[str | None, Field(name="projectPath")]
    language: str
    folder_name: Annotated[str, Field(name="folderName")]
    status: Literal["found", "missing", "unavailable", "not chosen"]
    problem: str | None = None


class ModeFacts(Value):
    name: str
    is_umb_active: Annotated[bool, Field(name="isUmbActive")]
    memory_bank_status: Annotated[str, Field(name="memoryBankStatus")]


class SystemFacts(Value):
    platform: str
    release: str
    arch: str
    python_version: Annotated[str, Field(name="pythonVersion")]
    working_folder: Annotated[str, Field(name="workingFolder")]
    cwd: str | None = None
    env: list[str] | None = None


class Diagnosis(Value):
    timestamp: str
    memory_bank: Annotated[BankFacts, Field(name="memoryBank")]
    mode: ModeFacts
    system: SystemFacts

    @property
    def sentence(self) -> str:
        shown = json.dumps(to_json(self), ensure_ascii=False, indent=2)
        return f"MCP configuration:\n{shown}"


class Renamed(Value):
    old: Annotated[str, Field(name="from")]
    new: Annotated[str, Field(name="to")]
    reason: str | None = None


class NamingMigration(Value):
    migrated: list[Renamed]
    skipped: list[Renamed]

    @property
    def sentence(self) -> str:
        said = f"Migration completed. {len(self.migrated)} files migrated."
        for pair in self.skipped:
            said += f" {pair.old} was left as it is: {pair.reason}."
        return said


class CareTools(Family):
    """A guide, a diagnosis without secrets, and the migration of old names."""

    def __init__(
        self, banks: Banks, clock: Clock, offered: Offered, surroundings: Surroundings
    ) -> None:
        self._banks = banks
        self._clock = clock
        self._offered = offered
        self._surroundings = surroundings

    @tool()
    async def get_instructions(self) -> Guide:
        """Explain how to work with the memory bank. Needs none."""
        return Guide(instructions((item.name, item.description) for item in self._offered()))

    @tool()
    async def debug_mcp_config(
        self,
        call: Call,
        verbose: Annotated[bool, Field("With the names of the settings' variables.")] = False,
    ) -> Diagnosis:
        """Show which memory bank, mode and system this server works with."""
        found = await self._bank_facts(call)
        mode = ModeFacts(
            mode_of(call.session.mode, self._banks.options),
            call.session.updates_bank,
            "ACTIVE" if found.status == "found" else "INACTIVE",
        )
        return Diagnosis(iso(self._clock()), found, mode, self._system_facts(verbose=verbose))

    @tool(Effect.DESTROYS)
    async def migrate_file_naming(
        self, call: Call, store_id: StoreId | None = None
    ) -> NamingMigration:
        """Rename core files with camelCase names, as in activeContext.md, to active-context.md."""
        migrated = await migrate_names(await self._banks.existing(call, store_id))
        return NamingMigration(
            [Renamed(old, TODAYS_NAMES[old]) for old in migrated.renamed],
            [
                Renamed(old, TODAYS_NAMES[old], f"{TODAYS_NAMES[old]} exists")
                for old in migrated.skipped
            ],
        )

    async def _bank_facts(self, call: Call) -> BankFacts:
        folder = self._banks.options.folder
        try:
            bank = await self._banks.chosen(call)
            if bank is None:
                return BankFacts(None, None, "en", folder, "not chosen")
            status = "found" if await exists(bank) else "missing"
            return BankFacts(bank.address, bank.home.address, "en", folder, status)
        except EverkeptError as error:
            meant = call.session.bank or self._banks.options.place
            return BankFacts(meant, None, "en", folder, "unavailable", str(error))

    def _system_facts(self, *, verbose: bool) -> SystemFacts:
        import platform

        names = [name for name in self._surroundings.variables if name.startswith(OURS)]
        return SystemFacts(
            sys.platform,
            platform.release(),
            platform.machine(),
            platform.python_version(),
            self._surroundings.folder,
            self._surroundings.cwd,
            sorted(names) if verbose else None,
        )


PURPOSES: Mapping[str, str] = {
    PRODUCT: "what the project is for, its parts and technologies",
    ACTIVE: "what is being worked on: tasks, known issues, next steps, session notes",
    PROGRESS: "what was done, newest first",
    DECISIONS: "what was decided, why, and what else was considered",
    PATTERNS: "conventions of architecture, code and documents",
}
MODE_PURPOSES: Mapping[Mode, str] = {
    "architect": "design and planning; decisions and the knowledge graph",
    "ask": "questions; searching and reading",
    "code": "implementation; progress and files",
    "debug": "finding faults; session notes and the graph",
    "test": "testing; progress and files",
}

# Each line is given only where one of its tools is offered, and names those that are.
_WORKFLOW: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "At the start": (
        (("get_memory_bank_status",), "See whether there is a bank, and what it lacks."),
        (("initialize_memory_bank",), "Make one where there is none."),
        (("list_stores", "select_store"), "Choose another one of several banks."),
        (("get_context_digest", "get_context_bundle"), "Read where the work stands."),
    ),
    "During the work": (
        (("search_memory_bank", "graph_search"), "Look before asking the user again."),
        (("track_progress", "add_progress_entry"), "Note each step that is done."),
        (("log_decision",), "Keep a decision with its reasons and alternatives."),
        (("add_session_note",), "Keep observations, questions and blockers."),
        (("update_tasks", "update_active_context"), "Keep tasks and next steps true."),
        (
            ("graph_upsert_entity", "graph_add_observation", "graph_link_entities"),
            "Keep what is known about parts, people and how they belong together.",
        ),
        (
            ("write_memory_bank_file", "batch_write_files"),
            "Rewrite a file; pass the ETag of what you read, so that no other edit is lost.",
        ),
    ),
    "At the end": (
        (("update_active_context",), "Leave the open tasks and the next steps."),
        (("process_umb_command", "complete_umb"), 'On "Update Memory Bank", go through all files.'),
        (("create_backup",), "Before a large change, or now: keep a copy of everything."),
    ),
}


def instructions(tools: Iterable[tuple[str, str]]) -> str:
    """In markdown, for these tools, each with its description; nothing else is mentioned."""
    offered = dict(tools)
    return "\n".join(
        [
            "# Memory bank",
            "",
            "A folder of markdown files that people and assistants share. The files are the"
            " truth: they may be edited by hand at any time, and are read anew each time.",
            *_workflow(offered),
            "",
            "## Core files",
            "",
            *(f"- `{name}`: {PURPOSES[name]}" for name in CORE_FILES),
            "",
            "## Modes",
            "",
            *(f"- `{mode}`: {MODE_PURPOSES[mode]}{_default(mode)}" for mode in MODES),
            "",
            "## Tools",
            "",
            "| Tool | What it does |",
            "|---|---|",
            *(f"| `{name}` | {_cell(description)} |" for name, description in offered.items()),
            "",
        ]
    )


def _workflow(offered: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for moment, steps in _WORKFLOW.items():
        told: list[str] = []
        for names, what in steps:
            there = [f"`{name}`" for name in names if name in offered]
            if there:
                told.append(f"- {what} ({', '.join(there)})")
        if told:
            lines += ["", f"## {moment}", "", *told]
    return lines


def _default(mode: Mode) -> str:
    return " (the default)" if mode == DEFAULT_MODE else ""


def _cell(description: str) -> str:
    first, _, _ = description.partition("\n")
    return first.replace("|", "\\|")
