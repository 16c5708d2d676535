"""Tools beside the daily work: a guide, a diagnosis, and the names of old files."""

import json
import sys
from typing import Annotated, Literal

from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError
from everkept.families.bank.banks import Banks, exists
from everkept.families.bank.care.instructions import instructions
from everkept.families.bank.files.core_files import migrate_names
from everkept.families.bank.model import TODAYS_NAMES, StoreId
from everkept.families.bank.modes.modes import Offered, mode_of
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
