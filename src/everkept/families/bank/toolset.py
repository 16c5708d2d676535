"""All tools of the memory bank, combined."""

from collections.abc import Iterable

from everkept.core.files import FileStores
from everkept.core.ports import Library, VectorIndexer
from everkept.core.times import Clock
from everkept.families.bank.backup_tools import BackupTools
from everkept.families.bank.banks import BankRecords, Banks, StoreRegistry
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.file_versions import FileVersions, OpenVersions
from everkept.families.bank.graph.mirror import GraphMirror, MirrorMaintenanceTools, MirrorTools
from everkept.families.bank.graph.tools import BankGraphTools, DocPointerTools
from everkept.families.bank.guidance_tools import CareTools, ModeTools, RuntimeInfo
from everkept.families.bank.memory_files import MemoryFiles
from everkept.families.bank.model import BankOptions, get_tool_names, rephrase_errors
from everkept.families.bank.progress_tools import ProgressTools
from everkept.families.bank.search_tools import SearchTools
from everkept.families.bank.section_index import SectionIndex
from everkept.families.bank.section_search import BankSectionSearch
from everkept.families.bank.store_tools import StoreTools
from everkept.families.bank.targeted_context import TargetedTools
from everkept.families.bank.thinking_tools import ThinkingTools
from everkept.tools.tool import Effect, Tool
from everkept.values import Value


class BankSurface(Value):
    """Choice of offered tools: `extras` adds the newer tools, `of_mode` keeps only those of the initial mode."""

    extras: bool = False
    of_mode: bool = False


class BankFamily:
    """The family's tools, and the parts that other packages use."""

    def __init__(
        self,
        files: FileStores,
        library: Library,
        records: BankRecords,
        indexing: VectorIndexer,
        clock: Clock,
        options: BankOptions,
        surroundings: RuntimeInfo,
        open_versions: OpenVersions | None = None,
    ) -> None:
        mask = options.mask_secrets
        self.records = records
        self.versions = None if open_versions is None else FileVersions(open_versions, clock)
        self.banks = Banks(files, StoreRegistry(library), options, self.versions.attach if self.versions else None)
        self.mirror = GraphMirror(records, library, clock, mask=mask, read_only=options.read_only)
        index = SectionIndex(records, indexing, clock, self.banks)
        self.sections = BankSectionSearch(self.banks, records, index, indexing, clock)
        self._options = options
        self.memory_files = MemoryFiles(self.banks)
        self._offered: list[Tool] = []
        banks, mirror = self.banks, self.mirror
        self._tools = (
            FileTools(banks, records, clock, mirror.read_summary),
            SearchTools(banks, self.sections, clock),
            ProgressTools(banks, clock),
            ModeTools(banks, self._list_usable),
            BankGraphTools(banks, records, mirror, clock, mask=mask),
            MirrorTools(banks, mirror),
            StoreTools(banks, clock),
            BackupTools(banks, files, mirror, clock),
        )
        self._extras = (
            CareTools(banks, clock, self._list_usable, surroundings),
            MirrorMaintenanceTools(banks, mirror),
            DocPointerTools(banks, records, mirror, clock, mask=mask),
            TargetedTools(banks, records, mirror, self.sections, clock, mask=mask),
            ThinkingTools(banks, clock),
        )

    def list_tools(self, surface: BankSurface) -> list[Tool]:
        families = (*self._tools, *self._extras) if surface.extras else self._tools
        tools: Iterable[Tool] = (tool for family in families for tool in family.list_tools())
        if surface.of_mode and self._options.mode is not None:
            meant = get_tool_names(self._options.mode)
            tools = (tool for tool in tools if tool.name in meant)
        self._offered = [rephrase_errors(tool) for tool in tools]
        return self._offered

    def _list_usable(self) -> list[Tool]:
        """Return the tools to recommend. In read-only mode, these are only the reading tools."""
        reading = (Effect.READS, Effect.SESSION_ONLY)
        if not self._options.read_only:
            return self._offered
        return [tool for tool in self._offered if tool.effect in reading]
