"""Settings from the flags of a command."""

import logging
import sys
from typing import Any

from everkept.settings import Settings, read_settings


def load_command_settings(**flags: Any) -> Settings:
    """Return the settings of one command, and set up logging."""
    settings = read_settings(flags)
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        force=True,
    )
    return settings
