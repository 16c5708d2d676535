"""Who cares for the files of an installation."""

from recollect.core.care import Care
from recollect.errors import Refused
from recollect.settings import Settings


def care_of(settings: Settings) -> Care:
    """Raises Refused where the engine keeps no files."""
    if settings.deployment_mode == "embedded-memory":
        raise Refused(
            "Everything is kept in memory here: there is no file to copy or to bring back.",
            hint="The setting deployment_mode says so.",
        )
    from recollect.engines.sqlite.care.keeper import SqliteCare

    return SqliteCare(settings.data_dir)
