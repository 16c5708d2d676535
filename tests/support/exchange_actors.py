"""What other processes do with exports."""

import asyncio
import os
import signal
from pathlib import Path

from everkept.engines.sqlite.library import SqliteLibrary
from everkept.exchange.exporter import export_library


def export_and_die(data: str, folder: str) -> None:
    """Ends on the spot once something is written, and before anything has its name."""

    def die(_done: int, _total: int) -> None:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    asyncio.run(export_library(SqliteLibrary(Path(data)), Path(folder), die))
