"""What a data folder holds in which nothing was ever stored."""

from recollect.core.ports import Library
from recollect.settings import Settings


def empty_library(settings: Settings) -> Library | None:
    """One that makes no file; None where something is stored."""
    if settings.deployment_mode == "embedded-memory":
        return None
    folder = settings.data_dir
    if any(any((folder / part).glob("*.db")) for part in (".", "projects", "archive")):
        return None
    from recollect.engines.memory.library import MemoryLibrary

    return MemoryLibrary()
