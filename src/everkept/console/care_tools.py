"""Tools of the page about care: backups, an export and stored secrets. Only the owner may use them."""

import asyncio
from typing import Any

from everkept.app.app import App
from everkept.care.backup import back_up
from everkept.care.backup_schedule import get_backup_folder
from everkept.care.check_context import get_sqlite_care
from everkept.care.purge import SecretFinding, find_secrets, mask_secrets
from everkept.console.owner import require_owner
from everkept.core.disk import make_folder
from everkept.core.library import track_replica_use
from everkept.core.times import format_iso
from everkept.engines.sqlite.archive import format_moment
from everkept.exchange.exporter import export_library, require_complete
from everkept.tools.schema import to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool

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
