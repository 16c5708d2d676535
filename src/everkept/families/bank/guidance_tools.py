"""Tools that guide an assistant: modes, instructions, diagnosis and renaming of older files."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Annotated, Literal

from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text, format_count
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError, InvalidInput, Refused, Unavailable
from everkept.families.bank.bank_files import append_warnings
from everkept.families.bank.banks import Banks, exists
from everkept.families.bank.core_files import migrate_names
from everkept.families.bank.mode_rules import END_STEP, FoundRules, find_own_words, is_update_command, read_rules
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    CURRENT_NAMES,
    DECISIONS,
    DEFAULT_MODE,
    MODE_TOOLS,
    MODES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    TOOL_NAMES,
    Mode,
    StoreId,
    ToolLister,
    get_mode,
)
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value, replace

UPDATE_STARTED_MESSAGE = "[MEMORY BANK: UPDATING] UMB mode activated. You can temporarily update Memory Bank files."
UPDATE_ENDED_MESSAGE = "[MEMORY BANK: ACTIVE] UMB mode deactivated. Memory Bank updates have been completed."
INVALID_COMMAND_MESSAGE = "Invalid UMB command."
COMMAND_HINT = 'Use "Update Memory Bank" or "UMB".'
MAX_TYPICAL_TOOLS = 8  # named in the text of a result
STATELESS_MODE_NOTICE = (
    "This connection is stateless: mode {mode} applies only to this result. "
    "To keep it, start the server with --mode {mode}."
)
_TOOL_NAME = re.compile(r"(?<![a-z])[a-z]++(?:_[a-z]++)+")
STATELESS_UPDATE_NOTICE = "This connection is stateless: you do not need to complete the update."


class ModeView(Value):
    """A mode and its instructions. The text repeats the fields, because some clients show only the text."""

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
    warnings: list[ToolWarning] | None = None

    @property
    def sentence(self) -> str:
        lines = [self.message, *self._list_guidance(), *([self.note] if self.note else ())]
        return append_warnings("\n".join(lines), self.warnings)

    def _list_guidance(self) -> list[str]:
        told = ["", "Instructions:", *_format_list(self.instructions)]
        typical = ", ".join(self.tools[:MAX_TYPICAL_TOOLS])
        return [*told, f"Typical tools: {typical}"] if typical else told


class UpdateView(ModeView):
    """State of a bank update, whose message already has the instructions."""

    def _list_guidance(self) -> list[str]:
        return []


class ModeTools(ToolFamily):
    """Tools for the mode of a session. Only `offered` tools are recommended, or all if it is None."""

    def __init__(self, banks: Banks, offered: ToolLister | None = None) -> None:
        self._banks = banks
        self._offered = offered

    @tool(Effect.SESSION_ONLY)
    async def switch_mode(
        self,
        call: ToolCall,
        mode: Annotated[Mode, Field("Mode to switch to; omit to show the current one")] | None = None,
        umb: Annotated[bool, Field("true: start a bank update; false: end it; takes precedence over `mode`")]
        | None = None,
        umb_command: Annotated[
            str, Field("With `umb` true: the user's words to check", name="umbCommand", max_length=10_000)
        ]
        | None = None,
        store_id: StoreId | None = None,
    ) -> ModeView:
        """Switch the working mode. Without `mode`, show it. With `umb`, start or end a memory bank update."""
        if umb is None and umb_command is not None:
            raise InvalidInput("`umbCommand` requires `umb`.", hint="Set `umb` to true.")
        if umb is not None:
            view = await (self._start_update(call, umb_command, store_id) if umb else self._end_update(call, store_id))
            if mode in (None, view.mode):
                return view
            ignored = f"The mode is still {view.mode}, because `umb` takes precedence over `mode`."
            return replace(view, note=" ".join(filter(None, [ignored, view.note])))
        if mode is None:
            return await self.get_current_mode(call, store_id)
        view = await self._build_view(call, store_id, mode)
        if not call.session.stateful:
            return replace(view, message=STATELESS_MODE_NOTICE.format(mode=mode))
        call.session.mode = mode
        return replace(view, message=f"Successfully switched to mode {mode}.")

    @tool()
    async def get_current_mode(self, call: ToolCall, store_id: StoreId | None = None) -> ModeView:
        """Show the working mode, its instructions and the state of the bank."""
        view = await self._build_view(call, store_id)
        shown = "Yes" if view.umb_active else "No"
        return replace(
            view, message=f"Current mode: {view.mode}\nMemory Bank status: {view.status}\nUMB mode active: {shown}"
        )

    @tool(Effect.SESSION_ONLY)
    async def process_umb_command(
        self,
        call: ToolCall,
        command: Annotated[str, Field("The user's words, such as Update Memory Bank", max_length=10_000, blank=False)],
        store_id: StoreId | None = None,
    ) -> ModeView:
        """Start a memory bank update if `command` asks for one."""
        return await self._start_update(call, command, store_id)

    @tool(Effect.SESSION_ONLY)
    async def complete_umb(self, call: ToolCall, store_id: StoreId | None = None) -> ModeView:
        """End a memory bank update."""
        return await self._end_update(call, store_id)

    async def _start_update(self, call: ToolCall, command: str | None, store_id: str | None) -> ModeView:
        """Start an update. Without a command nothing is checked, because the call itself is the request."""
        bank = await self._banks.require_bank(call, store_id)
        found = await read_rules(bank, self._get_mode(call))
        if command is not None and not is_update_command(command, found.rules.trigger):
            raise InvalidInput(
                INVALID_COMMAND_MESSAGE,
                hint=_describe_trigger(found),
                argument="command",
                value=clip_text(command),
                trigger=found.rules.trigger,
            )
        stateful = call.session.stateful
        call.session.updates_bank = stateful
        steps = [line for line in found.rules.umb if stateful or line != END_STEP]
        files = ", ".join(found.rules.files_to_update)
        return replace(
            self._build_mode_view(UpdateView, call, found, "ACTIVE"),
            message="\n".join([UPDATE_STARTED_MESSAGE, f"Files to update: {files}", *_format_list(steps)]),
            instructions=steps,
            note=None if stateful else STATELESS_UPDATE_NOTICE,
        )

    async def _end_update(self, call: ToolCall, store_id: str | None) -> ModeView:
        found, status = await self._find_rules(call, store_id, self._get_mode(call))
        if not call.session.updates_bank:
            hint = f"Start an update with process_umb_command. {_describe_trigger(found)}"
            raise Refused("UMB mode is not active.", hint=hint if call.session.stateful else STATELESS_UPDATE_NOTICE)
        call.session.updates_bank = False
        return replace(self._build_mode_view(UpdateView, call, found, status), message=UPDATE_ENDED_MESSAGE)

    async def _build_view(self, call: ToolCall, store_id: str | None, mode: Mode | None = None) -> ModeView:
        found, status = await self._find_rules(call, store_id, mode or self._get_mode(call))
        return self._build_mode_view(ModeView, call, found, status)

    async def _find_rules(self, call: ToolCall, store_id: str | None, mode: Mode) -> tuple[FoundRules, str]:
        """Return the rules and the bank's status. Use the built-in rules if the bank is unreachable."""
        try:
            bank = await self._banks.find_bank(call, store_id)
            is_there = bank is not None and await exists(bank)
        except (Refused, Unavailable) as error:
            found = await read_rules(None, mode)
            message = f"The bank is unreachable, so the built-in rules apply. {error}"
            warned = ToolWarning("bank_unreachable", message)
            return FoundRules(found.rules, [warned, *found.warnings]), "INACTIVE"
        return await read_rules(bank, mode), "ACTIVE" if is_there else "INACTIVE"

    def _build_mode_view(self, kind: type[ModeView], call: ToolCall, found: FoundRules, status: str) -> ModeView:
        rules = found.rules
        offered = TOOL_NAMES if self._offered is None else {item.name for item in self._offered()}
        general = rules.general if rules.source else _select_possible(rules.general, offered)
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

    def _get_mode(self, call: ToolCall) -> Mode:
        return get_mode(call.session.mode, self._banks.options)


def _select_possible(lines: Iterable[str], offered: Set[str]) -> list[str]:
    """Return the lines that name no bank tool, or only offered ones."""
    return [line for line in lines if not TOOL_NAMES.intersection(_TOOL_NAME.findall(line)) - offered]


def _describe_trigger(found: FoundRules) -> str:
    own = find_own_words(found.rules.trigger)
    return COMMAND_HINT if own is None else f"Use a command that matches {own}, the trigger in {found.rules.source}."


def _format_list(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


VARIABLE_PREFIX = "EVERKEPT_"  # prefix of the variables whose names may be shown; values never are


class RuntimeInfo(Value):
    """Environment of the program. `variables` are only the names of its environment variables."""

    folder: str  # the working folder, which may differ from the start folder
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


class BankDiagnosis(Value):
    timestamp: str
    memory_bank: Annotated[BankFacts, Field(name="memoryBank")]
    mode: ModeFacts
    system: SystemFacts

    @property
    def sentence(self) -> str:
        shown = json.dumps(to_json(self), ensure_ascii=False, indent=2)
        return f"MCP configuration:\n{shown}"


class RenamedFile(Value):
    old: Annotated[str, Field(name="from")]
    new: Annotated[str, Field(name="to")]
    reason: str | None = None


class NamingMigration(Value):
    migrated: list[RenamedFile]
    skipped: list[RenamedFile]

    @property
    def sentence(self) -> str:
        # The contract always has the plural.
        count = format_count(len(self.migrated), "files", "files")
        skipped = [f"Skipped {pair.old}: {pair.reason}." for pair in self.skipped]
        return " ".join([f"Migration completed. {count} migrated.", *skipped])


class CareTools(ToolFamily):
    """Tools for instructions, a diagnosis without secrets, and the renaming of older files."""

    def __init__(self, banks: Banks, clock: Clock, offered: ToolLister, surroundings: RuntimeInfo) -> None:
        self._banks = banks
        self._clock = clock
        self._offered = offered
        self._surroundings = surroundings

    @tool()
    async def get_instructions(self) -> Guide:
        """Explain how to use the memory bank. Works without one."""
        return Guide(render_instructions((item.name, item.description) for item in self._offered()))

    @tool()
    async def debug_mcp_config(
        self,
        call: ToolCall,
        verbose: Annotated[bool, Field("true: add the names of environment variables; default false")] = False,
    ) -> BankDiagnosis:
        """Show which memory bank, mode and system this server uses."""
        found = await self._collect_bank_facts(call)
        mode = ModeFacts(
            get_mode(call.session.mode, self._banks.options),
            call.session.updates_bank,
            "ACTIVE" if found.status == "found" else "INACTIVE",
        )
        return BankDiagnosis(format_iso(self._clock()), found, mode, self._collect_system_facts(verbose=verbose))

    @tool(Effect.DESTROYS)
    async def migrate_file_naming(self, call: ToolCall, store_id: StoreId | None = None) -> NamingMigration:
        """Rename core files with camelCase names, such as activeContext.md, to active-context.md."""
        migrated = await migrate_names(await self._banks.require_bank(call, store_id))
        return NamingMigration(
            [RenamedFile(old, CURRENT_NAMES[old]) for old in migrated.renamed],
            [RenamedFile(old, CURRENT_NAMES[old], f"{CURRENT_NAMES[old]} exists") for old in migrated.skipped],
        )

    async def _collect_bank_facts(self, call: ToolCall) -> BankFacts:
        folder = self._banks.options.folder
        try:
            bank = await self._banks.find_bank(call)
            if bank is None:
                return BankFacts(None, None, "en", folder, "not chosen")
            status = "found" if await exists(bank) else "missing"
            return BankFacts(bank.address, bank.home.address, "en", folder, status)
        except EverkeptError as error:
            meant = call.session.bank or self._banks.options.place
            return BankFacts(meant, None, "en", folder, "unavailable", str(error))

    def _collect_system_facts(self, *, verbose: bool) -> SystemFacts:
        import platform

        names = [name for name in self._surroundings.variables if name.startswith(VARIABLE_PREFIX)]
        return SystemFacts(
            sys.platform,
            platform.release(),
            platform.machine(),
            platform.python_version(),
            self._surroundings.folder,
            self._surroundings.cwd,
            sorted(names) if verbose else None,
        )


FILE_PURPOSES: Mapping[str, str] = {
    PRODUCT: "purpose of the project, its components and technologies",
    ACTIVE: "current work: tasks, known issues, next steps, session notes",
    PROGRESS: "completed work, newest first",
    DECISIONS: "decisions, their reasons and the alternatives",
    PATTERNS: "conventions for architecture, code and documentation",
}
MODE_PURPOSES: Mapping[Mode, str] = {
    "architect": "design and planning; decisions and the knowledge graph",
    "ask": "questions; searching and reading",
    "code": "implementation; progress and files",
    "debug": "finding bugs; session notes and the graph",
    "test": "testing; progress and files",
}

# Each line appears only if at least one of its tools is offered, and names the offered ones.
_WORKFLOW: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "At the start": (
        (("get_memory_bank_status",), "Check whether a bank exists and which core files are missing."),
        (("initialize_memory_bank",), "Create a bank if there is none."),
        (("list_stores", "select_store"), "Choose another bank if there are several."),
        (("get_context_digest", "get_context_bundle"), "Read the state of the work."),
    ),
    "During the work": (
        (("search_memory_bank", "graph_search"), "Search before you ask the user again."),
        (("track_progress", "add_progress_entry"), "Record each completed step."),
        (("log_decision",), "Record each decision with its reasons and alternatives."),
        (("add_session_note",), "Record observations, questions and blockers."),
        (("update_tasks", "update_active_context"), "Keep tasks and next steps current."),
        (
            ("graph_upsert_entity", "graph_add_observation", "graph_link_entities"),
            "Record facts about components and people, and how they relate.",
        ),
        (
            ("write_memory_bank_file", "batch_write_files"),
            "Rewrite a file. Pass the ETag of the version you read, so that no other edit is lost.",
        ),
    ),
    "At the end": (
        (("update_active_context",), "Record the open tasks and next steps."),
        (("process_umb_command", "complete_umb"), 'If the user says "Update Memory Bank", update all files.'),
        (("create_backup",), "Create a backup, also before a large change."),
    ),
}


def render_instructions(tools: Iterable[tuple[str, str]]) -> str:
    """Render the instructions in Markdown, for these tools and their descriptions only."""
    offered = dict(tools)
    return "\n".join(
        [
            "# Memory bank",
            "",
            "A folder of Markdown files that people and assistants share. The files are authoritative: "
            "people may edit them at any time, and every call reads them again.",
            *_render_workflow(offered),
            "",
            "## Core files",
            "",
            *(f"- `{name}`: {FILE_PURPOSES[name]}" for name in CORE_FILES),
            "",
            "## Modes",
            "",
            *(f"- `{m}`: {MODE_PURPOSES[m]}{' (the default)' if m == DEFAULT_MODE else ''}" for m in MODES),
            "",
            "## Tools",
            "",
            "| Tool | What it does |",
            "|---|---|",
            *(f"| `{name}` | {_format_cell(description)} |" for name, description in offered.items()),
            "",
        ]
    )


def _render_workflow(offered: Mapping[str, str]) -> list[str]:
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


def _format_cell(description: str) -> str:
    first, _, _ = description.partition("\n")
    return first.replace("|", "\\|")
