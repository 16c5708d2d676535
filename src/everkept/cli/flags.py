"""Settings from the flags of a command."""

import logging
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from everkept.settings import Settings, read_settings

# Without the password, because others can see the options of a program.
ENGINE_SETTINGS = ("engine", "database_url", "database_user")
# settings that all commands accept
COMMON_SETTINGS = "data_dir", "project", "config", *ENGINE_SETTINGS, "log_level"

# loggers of what `status` and `doctor` report themselves
CONNECTION_LOGS = ("everkept.engines.standby.failover",)
# logger of what the end of each command says about its project
PROJECT_LOGS = ("everkept.accounts.project_rule",)

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


@contextmanager
def silence_warnings(settings: Settings, names: Sequence[str]) -> Generator[None, None, None]:
    """Silence loggers, because the command itself reports what they would say. --log-level changes that."""
    loggers = [logging.getLogger(name) for name in names if settings.log_level == "warning"]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)
