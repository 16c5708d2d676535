"""Tools beside the daily work: a guide for assistants, a diagnosis, and the names of old files."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError
from everkept.families.bank.banks import Banks, exists
from everkept.families.bank.core_files import migrate_names
from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    DEFAULT_MODE,
    MODES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    TODAYS_NAMES,
    Mode,
    StoreId,
)
from everkept.families.bank.modes import Offered, mode_of
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, Family, tool
from everkept.values import Value

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
