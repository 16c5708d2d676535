"""Tools of the page's overview: counts, growth, findings of the doctor, connected clients, and projects."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from everkept.app.app import App
from everkept.care.check_context import CheckContext
from everkept.care.doctor import diagnose
from everkept.care.installation_checks import find_clients
from everkept.clients.hook_entries import HOOK_FORMATS
from everkept.clients.survey import ClientInstallation
from everkept.console.owner import require_owner
from everkept.core.sessions import ToolCall, get_acting_account
from everkept.errors import NotFound
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
