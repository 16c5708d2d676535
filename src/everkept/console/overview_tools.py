"""Tools of the overview and of the page about care: counts, findings of the doctor, clients, backups and secrets."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from everkept.app.app import App
from everkept.care.backup import back_up
from everkept.care.backup_schedule import get_backup_folder
from everkept.care.check_context import CheckContext, get_sqlite_care
from everkept.care.doctor import diagnose
from everkept.care.installation_checks import find_clients
from everkept.care.purge import SecretFinding, find_secrets, mask_secrets
from everkept.clients.hook_entries import HOOK_FORMATS
from everkept.clients.survey import ClientInstallation
from everkept.console.owner import require_owner
from everkept.core.disk import make_folder
from everkept.core.library import track_replica_use
from everkept.core.sessions import ToolCall, get_acting_account
from everkept.core.times import format_iso
from everkept.engines.sqlite.archive import format_moment
from everkept.errors import NotFound
from everkept.exchange.exporter import export_library, require_complete
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool


class OverviewPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def read_console_state(self, call: ToolCall) -> ToolResult:
        """Return who is acting and what this server offers."""
        account, settings = get_acting_account(), self._app.settings
        families = sorted({_get_family(each.name) for each in self._app.tools} - {""})
        return ToolResult(
            {
                "account": None if account is None else account.name,
                "only_project": settings.only_project,
                "read_only": settings.read_only or bool(account and account.is_peer),
                "families": families,
                "data_dir": str(settings.data_dir) if account is None else None,
                "engine": settings.engine,
                "reachable": self._app.guarded.condition.status == "connected",
                "folder_project": None if account is not None else await self._find_folder_project(call),
            }
        )

    async def _find_folder_project(self, call: ToolCall) -> str | None:
        try:
            found = await self._app.project_rule.find_active(call)
        except NotFound:
            return None
        return None if found is None else found.name

    @tool()
    async def read_overview(self) -> ToolResult:
        """Return the counts of everything stored, growth by week, and the most recalled memories."""
        require_owner(self._app)
        return ToolResult(to_json(await self._app.overview_reader.read_overview()))

    @tool()
    async def read_health(self) -> ToolResult:
        """Return the findings of the doctor, each with the command that fixes it."""
        require_owner(self._app)
        context = CheckContext(self._app.settings, self._app.clock)
        report = await asyncio.to_thread(diagnose, context)
        return ToolResult({"ok": report.is_healthy, "findings": [_describe_finding(each) for each in report.findings]})

    @tool()
    async def list_clients(self) -> ToolResult:
        """List the assistants of this machine: which are installed, and which of them use Everkept."""
        require_owner(self._app)
        found = await asyncio.to_thread(find_clients, CheckContext(self._app.settings, self._app.clock))
        grouped = {name: list(each) for name, each in groupby(found, key=attrgetter("client"))}
        return ToolResult({"clients": [_describe_client(each) for each in grouped.values()]})

    @tool(Effect.REPEATABLE)
    async def turn_project_off(self, project: str, off: Annotated[bool, Field("false: on again")] = True) -> ToolResult:
        """Turn memory off or on for a project."""
        after = await self._app.guarded.set_off(project, off=off)
        return ToolResult({"project": after.name, "off": after.is_off})


def _get_family(tool_name: str) -> str:
    from everkept.app.build import TOOL_FAMILIES

    return TOOL_FAMILIES.get(tool_name, "")


def _describe_client(found: Sequence[ClientInstallation]) -> dict[str, Any]:
    """Return what one client uses of Everkept, in the words of its configuration files."""
    first = found[0]
    used = sorted({each.kind for each in found if each.is_set_up})
    return {
        "name": first.client,
        "title": first.title,
        "installed": any(each.is_installed for each in found),
        "uses": used,
        "files": sorted({str(each.file) for each in found if each.is_set_up or each.problem}),
        "has_hooks": bool({"hooks", "plugin"} & set(used)),
        "can_hook": first.client in HOOK_FORMATS,
        "problem": next((each.problem for each in found if each.problem), None),
    }


def _describe_finding(finding: Any) -> dict[str, Any]:
    shown = {name: getattr(finding, name) for name in ("check", "severity", "what", "command")}
    return {**shown, "fixable": finding.mend is not None}


EXPORT_SUFFIX = "-export"  # of the folder next to the data folder


class CarePageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def list_data_backups(self) -> ToolResult:
        """List the backups in the folder of backups, newest first."""
        require_owner(self._app)
        folder = get_backup_folder(self._app.settings)
        files = sorted(folder.glob("*.zip"), key=lambda each: each.stat().st_mtime, reverse=True)
        rows = [
            {"file": str(each), "size": each.stat().st_size, "at": format_iso(each.stat().st_mtime_ns // 1_000)}
            for each in files
        ]
        return ToolResult({"backups": rows, "folder": str(folder)})

    @tool(Effect.WRITES)
    async def make_data_backup(self) -> ToolResult:
        """Write a verified backup into the folder of backups."""
        require_owner(self._app)
        settings, clock = self._app.settings, self._app.clock
        care = get_sqlite_care(settings)
        folder = get_backup_folder(settings)
        await asyncio.to_thread(make_folder, folder)
        file = folder / f"everkept-{format_moment(clock())}.zip"
        made = await asyncio.to_thread(back_up, care, file, clock, _ignore_progress)
        return ToolResult({"file": str(made.file), "size": made.size})

    @tool(Effect.WRITES)
    async def export_all_data(self) -> ToolResult:
        """Export everything as Markdown and JSON Lines, next to the data folder. An earlier export is updated."""
        require_owner(self._app)
        data, library = self._app.settings.data_dir, self._app.library
        with track_replica_use() as noted:
            await library.list_projects()
            require_complete(library, noted)
            made = await export_library(library, data.with_name(data.name + EXPORT_SUFFIX), _ignore_progress)
            require_complete(library, noted)
        return ToolResult(to_json(made))

    @tool()
    async def find_stored_secrets(self) -> ToolResult:
        """Find secrets that were stored before masking knew them. The answer never contains the secrets."""
        require_owner(self._app)
        audit = await find_secrets(self._app.library)
        return ToolResult({"findings": [_describe(each) for each in audit.findings], "left_out": audit.left_out})

    @tool(Effect.PERMANENT)
    async def mask_stored_secrets(self) -> ToolResult:
        """Mask the secrets that were found, also in the log."""
        require_owner(self._app)
        audit = await find_secrets(self._app.library)
        done = await mask_secrets(self._app.library, [each for each in audit.findings if not each.in_id])
        return ToolResult(to_json(done))


def _ignore_progress(_done: int, _total: int) -> None:
    """The answer comes when everything is written."""


def _describe(finding: SecretFinding) -> dict[str, Any]:
    return to_json(finding)
