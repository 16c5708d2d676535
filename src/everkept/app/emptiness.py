"""What a data folder holds in which nothing was ever stored."""

from everkept.app.engines import make_library
from everkept.core.ports import Library
from everkept.core.times import now
from everkept.settings import Settings, surreal_folder


def empty_library(settings: Settings) -> Library | None:
    """One that makes no file; None where something is stored, or where it is in no files here."""
    if settings.deployment_mode != "embedded-file" or _holds_files(settings):
        return None
    from everkept.engines.memory.library import MemoryLibrary

    # What it says of itself is what the engine would, which has not been asked for anything.
    return MemoryLibrary(condition=make_library(settings, now).condition)


def _holds_files(settings: Settings) -> bool:
    if settings.engine == "surreal":
        folder = surreal_folder(settings)
        return folder.is_dir() and any(folder.iterdir())
    places = (settings.data_dir / part for part in (".", "projects", "archive"))
    return any(any(place.glob("*.db")) for place in places)
