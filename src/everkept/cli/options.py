"""Options of commands, and their values as people type them: counts, folders, times."""

import io
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast, get_args

import click

from everkept.cli.flags import COMMON_SETTINGS as COMMON_SETTINGS
from everkept.cli.flags import ENGINE_SETTINGS as ENGINE_SETTINGS
from everkept.cli.flags import load_command_settings as load_command_settings
from everkept.core.times import LocalZone, format_iso, read_clock, to_microseconds
from everkept.errors import InvalidInput
from everkept.settings import Engine

LOG_LEVELS = ("debug", "info", "warning", "error")
ENGINES: tuple[str, ...] = get_args(Engine)


class CountRange(click.IntRange):
    """Whole number within bounds, with an error that names them."""

    name = "number"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)
        self._meant = f"a whole number from {least:,} to {most:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not {self._meant}.", param, ctx)


def _complete_project(context: click.Context, parameter: click.Parameter, typed: str) -> list[Any]:
    from everkept.cli.completion import complete_projects  # a start does not need it

    return complete_projects(context, parameter, typed)


def add_common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command accepts after its name. Help shows them after the command's own."""
    own = list[click.Parameter](getattr(command, "__click_params__", ()))
    for option in reversed(
        [
            click.option("--data-dir", metavar="PATH", help="Folder that holds all data."),
            click.option(
                "--project", shell_complete=_complete_project, help="Project to use. Default: this folder's project."
            ),
            click.option("--config", metavar="FILE", help="Config file to read, or `none`."),
            click.option("--engine", type=click.Choice(ENGINES), help="Database engine. Default: sqlite."),
            click.option("--database-url", metavar="URL", help="URL of the database server."),
            click.option("--database-user", metavar="NAME", help="User name on the database server."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
            click.option(
                "--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level to log to stderr. Default: warning."
            ),
        ]
    ):
        command = option(command)
    parameters = cast(Any, command).__click_params__  # click shows the last one first
    parameters[:] = [*parameters[len(own) :], *own]
    return command


def split_tags(typed: Sequence[str]) -> list[str]:
    """Return the tags that people separate with commas."""
    return [tag.strip() for text in typed for tag in text.split(",") if tag.strip()]


STANDARD_INPUT = "-"


def read_standard_input() -> str:
    """Return all of standard input with its own line ends."""
    stream: Any = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast(Any, stream).reconfigure(encoding="utf-8", newline="")
    try:
        return str(stream.read())
    except UnicodeDecodeError:
        raise InvalidInput("Standard input is not UTF-8.", hint="Convert it to UTF-8 first.") from None


def join_words(words: Sequence[str]) -> str:
    """Return the typed words as a text, or standard input for `-`."""
    return read_standard_input() if [*words] == [STANDARD_INPUT] else " ".join(words)


class FolderPath(click.Path):
    """Path of a folder. An empty text is an error, and not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            raise InvalidInput("Specify a folder.", hint="Use `.` for the current folder.")
        return super().convert(value, param, ctx)


_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_AGO = re.compile(r"\s*(\d{1,4}|an?|one)\s+(minute|hour)s?\s+ago\s*", re.IGNORECASE)


def parse_typed_time(text: str | None, option: str, *, end: bool = False) -> int | None:
    """Parse a typed time into the beginning or end of its period. Return None for no text.

    Words, and times without a zone, use the clock and calendar of this machine.
    """
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        count = int(ago[1]) if ago[1].isdecimal() else 1
        passed = timedelta(**{f"{ago[2].lower()}s": count})
        return read_clock() - passed // timedelta(microseconds=1)
    if _DATE_AND_TIME.match(text.strip()):
        return _parse_date_and_time(text.strip(), option)
    from everkept.retrieval.dates import find_spans

    found = find_spans(text, read_clock(), LocalZone())
    if not found:
        raise _build_time_error(text, option)
    best = max(found, key=lambda span: (span.strength, span.start))
    return best.end - 1 if end else best.start


def normalize_typed_time(text: str | None, option: str, *, end: bool = False) -> str | None:
    """Return a typed time in the form that tools accept."""
    at = parse_typed_time(text, option, end=end)
    return None if at is None else format_iso(at)


def _parse_date_and_time(text: str, option: str) -> int:
    try:
        typed = datetime.fromisoformat(text)
    except ValueError:
        raise _build_time_error(text, option) from None
    return to_microseconds(typed)


def _build_time_error(text: str, option: str) -> InvalidInput:
    return InvalidInput(
        f'"{text}" is not a date or time.',
        hint="Use, for example, 2026-03-01, 2026-03-01T14:30, yesterday, last week or 3 days ago.",
        argument=option,
        value=text,
    )
