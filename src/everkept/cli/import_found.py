"""`everkept import` without arguments: what is on this machine, with counts, and its import."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from everkept.cli.import_history import import_unread, print_conversations
from everkept.cli.import_programs import (
    list_memory_files,
    print_plugin_import,
    print_server_import,
    run_plugin_import,
    run_server_import,
)
from everkept.cli.import_sources import list_own_places, print_outcome, run_import, survey_source
from everkept.cli.next_steps import find_unread, is_interactive
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_json
from everkept.core.text import format_count, join_words
from everkept.errors import EverkeptError
from everkept.exchange.foreign import ForeignSource
from everkept.exchange.server_memory_import import read_server_file
from everkept.exchange.sources import SOURCES
from everkept.families.graph.model import NewEntity
from everkept.settings import find_plugin_folder
from everkept.tools.schema import to_json
from everkept.values import Value

NOTHING_FOUND = "No data of other programs was found. If it is in another folder, run `everkept import SOURCE PATH`."
Flags = Mapping[str, Any]  # options of every command
Counts = dict[str, int]


class Program(Value):
    """Program whose data is looked for. `run` imports from the places, and `show` prints what it returns."""

    name: str
    find: Callable[[Flags], Sequence[str]]
    count: Callable[[Sequence[str], Flags], Counts]
    run: Callable[[Sequence[str], Flags], Any]
    show: Callable[[Any], None]


class FoundData(Value):
    """What a program keeps on this machine. `counts` is empty if it cannot be read."""

    program: str
    counts: Counts
    places: list[str]
    problem: str = ""

    def describe(self) -> str:
        plurals = {"memory": "memories", "entity": "entities"}
        return join_words(
            [format_count(count, kind, plurals.get(kind)) for kind, count in self.counts.items() if count]
        )


@click.command("auto")
@add_common_options
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def import_found(as_json: bool, yes: bool, **flags: Any) -> None:
    """Import what is found on this machine.

    Looks for data of other programs and for past conversations. Shows both with counts, and asks for each program.
    `everkept import` without arguments does the same.
    """
    programs = {each.name: each for each in list_programs()}
    found = [data for each in programs.values() if (data := _survey(each, flags)) is not None]
    if as_json and not yes:
        print_json({"found": [to_json(each) for each in found]})
        return
    if not as_json:
        rows = [{**to_json(each), "counts": each.describe()} for each in found]
        build_console().print(build_table("items", rows) if found else NOTHING_FOUND)
    chosen = [each for each in found if each.counts and (yes or _is_wanted(each))]
    outcomes: dict[str, Any] = {}
    for each in chosen:
        outcomes[each.program] = programs[each.program].run(each.places, flags)
        if not as_json:
            programs[each.program].show(outcomes[each.program])
    if as_json:
        print_json({name: to_json(outcome) for name, outcome in outcomes.items()})
    elif found and not chosen:
        echo("Nothing was imported. To import all of it, pass --yes. To import one, run `everkept import PROGRAM`.")


def list_programs() -> list[Program]:
    """Return the programs in the order in which they are shown."""
    return [
        Program("server-memory", _find_server_files, _count_server_files, _run_server_import, print_server_import),
        *map(_build_program, SOURCES.values()),
        Program("surrealdb-memory", _find_plugin, _count_plugin_data, _run_plugin_import, print_plugin_import),
        Program("history", _find_programs, _count_conversations, _run_history_import, _print_history_import),
    ]


def _survey(program: Program, flags: Flags) -> FoundData | None:
    """Return what an import would read, or None if there is nothing."""
    try:
        places = [*program.find(flags)]
    except EverkeptError:  # of the settings, which the import reports
        return None
    try:
        counts = program.count(places, flags) if places else {}
    except EverkeptError as error:
        return FoundData(program.name, {}, places, error.message)
    return FoundData(program.name, counts, places) if any(counts.values()) else None


def _is_wanted(found: FoundData) -> bool:
    """Ask a person. A program imports nothing without --yes."""
    origin = join_words(found.places) if found.program == "history" else found.program
    return is_interactive() and click.confirm(f"Import {found.describe()} from {origin}?", default=True, err=True)


def _build_program(source: ForeignSource) -> Program:
    def run(places: Sequence[str], flags: Flags) -> Any:
        return run_import(source, list(map(Path, places)), dry_run=False, **flags)

    return Program(
        source.name,
        find=lambda flags: list(map(str, list_own_places(source))),
        count=lambda places, flags: survey_source(source, list(map(Path, places))),
        run=run,
        show=print_outcome,
    )


def _find_server_files(flags: Flags) -> list[str]:
    return list(map(str, list_memory_files()))


def _count_server_files(places: Sequence[str], flags: Flags) -> Counts:
    parsed = [item for place in places for _, item in read_server_file(Path(place))]
    return {"entity": sum(isinstance(item, NewEntity) for item in parsed)}


def _run_server_import(places: Sequence[str], flags: Flags) -> Any:
    return run_server_import(list(map(Path, places)), dry_run=False, **flags)


def _find_plugin(flags: Flags) -> list[str]:
    folder = find_plugin_folder(load_command_settings(**flags))
    return [] if folder is None else [str(folder)]


def _count_plugin_data(places: Sequence[str], flags: Flags) -> Counts:
    from everkept.exchange.plugin_database import ENTITIES, MEMORIES, find_plugin_place, open_plugin_database

    async def count() -> Counts:
        place = find_plugin_place(load_command_settings(**flags), flags, places[0])
        async with open_plugin_database(place) as plugin:
            ids = await plugin.list_ids()
        return {"memory": len(ids[MEMORIES]), "entity": len(ids.get(ENTITIES, []))}

    return asyncio.run(count())


def _run_plugin_import(places: Sequence[str], flags: Flags) -> Any:
    return run_plugin_import(places[0], dry_run=False, **flags)


def _find_programs(flags: Flags) -> list[str]:
    """Return the assistants whose conversations are not imported yet."""
    unread = find_unread(flags)
    return unread.list_titles() if unread is not None else []


def _count_conversations(places: Sequence[str], flags: Flags) -> Counts:
    unread = find_unread(flags)
    return {"conversation": unread.total} if unread is not None else {}


def _run_history_import(places: Sequence[str], flags: Flags) -> Any:
    return import_unread(**flags)


def _print_history_import(outcome: Any) -> None:
    print_conversations(*outcome, as_json=False)
