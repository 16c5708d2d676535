"""Settings from the flags of a command."""

import logging
import sys
from typing import Any

from everkept.settings import Settings, read_settings

_LINE_CONTROLS = {code: ascii(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


class LineFormatter(logging.Formatter):
    """Format of log lines. A text from outside begins no line and controls no terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_LINE_CONTROLS)


def load_command_settings(**flags: Any) -> Settings:
    """Return the settings of one command, and set up logging."""
    settings = read_settings(flags)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    return settings
