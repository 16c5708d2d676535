"""Options that every command takes, and what becomes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from everkept.cli.flags import settings_from as settings_from
from everkept.errors import InvalidInput
from everkept.settings import Engine

LOG_LEVELS = ("debug", "info", "warning", "error")
ENGINES: tuple[str, ...] = get_args(Engine)
# The password is not among them: others see the options of a program.
OF_THE_ENGINE = ("engine", "database_url", "database_user")
COMMON = ("data_dir", "project", "config", *OF_THE_ENGINE, "log_level")  # settings, in all commands


class Count(click.IntRange):
    """A whole number within bounds, which a mistake is told."""

    name = "number"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)
        self._meant = f"a whole number from {least:,} to {most:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not {self._meant}.", param, ctx)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that every command accepts after its name."""
    for option in reversed(
        [
            click.option("--data-dir", metavar="PATH", help="Data folder."),
            click.option("--project", help="Project to work in."),
            click.option("--config", metavar="FILE", help="File with settings, or `none`."),
            click.option("--engine", type=click.Choice(ENGINES), help="What keeps everything."),
            click.option("--database-url", metavar="URL", help="Address of a database server."),
            click.option("--database-user", metavar="NAME", help="User of that server."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log to stderr."),
        ]
    ):
        command = option(command)
    return command


class Folder(click.Path):
    """The path of a folder; no text at all is none, and not the folder one is in."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            raise InvalidInput("No folder is named.", hint="`.` is the one you are in.")
        return super().convert(value, param, ctx)
