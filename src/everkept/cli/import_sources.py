"""`everkept import SOURCE`: data of other memory programs."""

import asyncio
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from everkept.accounts.project_rule import DEFAULT_PROJECT, get_empty_store
from everkept.app.app import App
from everkept.cli.changes import update_graph_files
from everkept.cli.next_steps import is_interactive
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_json, read_session, run_with_app, show_progress
from everkept.core.disk import is_own_place
from everkept.core.folder_project import FolderProject, find_folder_project, get_choice_key
from everkept.core.ports import RecordStore
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count, join_words
from everkept.core.transcripts import Transcript, Turn
from everkept.errors import InvalidInput, NotFound
from everkept.exchange.foreign import ForeignEntity, ForeignItem, ForeignMemory, ForeignSource, Machine, Skipped
from everkept.exchange.foreign_import import ForeignImport, ImportedKind, ImportTarget, import_foreign
from everkept.families.history.model import build_conversation_id, build_turn_id
from everkept.settings import AUTO, read_client_environment
from everkept.tools.schema import to_json

_WITH_ID = ForeignMemory, ForeignEntity


def build_machine() -> Machine:
    environment = read_client_environment()
    home = environment.get("HOME") or environment.get("USERPROFILE")
    return Machine(environment, Path(home) if home else Path.home(), sys.platform)


def build_source_command(source: ForeignSource) -> click.Command:
    """Return the command that imports from this source."""

    @click.command(source.name, help=_build_help(source), short_help=f"Import from {source.title}.")
    @add_common_options
    @click.argument("place", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
    @click.option("--dry-run", is_flag=True, help="Only show what would become what.")
    def command(as_json: bool, place: Path | None, dry_run: bool, project: str | None, **flags: Any) -> None:
        places = _find_places(source) if place is None else [place.expanduser()]
        outcome = run_import(source, places, project=project, dry_run=dry_run, **flags)
        if as_json:
            print_json(to_json(outcome))
        else:
            print_outcome(outcome)

    return command


def survey_source(source: ForeignSource, places: Sequence[Path]) -> dict[str, int]:
    """Return how much of what an import from the places would read."""
    items, _, _ = _read_all(source, places)
    transcripts = [each for place in places for each in (source.list_transcripts or _list_none)(place)]
    conversations, _ = _collect_ids(transcripts)
    return {
        "memory": sum(isinstance(item, ForeignMemory) for item in items),
        "entity": sum(isinstance(item, ForeignEntity) for item in items),
        "conversation": len(conversations),
    }


def _list_none(place: Path) -> Sequence[Transcript]:
    return ()


def _build_help(source: ForeignSource) -> str:
    return (
        f"Import from {source.title}.\n\n{source.help} Without PATH, looks where the program keeps its data. "
        "With --project, everything goes to that project, except what belongs to the user. "
        "You can run it again: it adds only what is new. The original is only read."
    )


def list_own_places(source: ForeignSource) -> list[Path]:
    """Return where the program keeps its data, without what another user of the machine put there, such as in /tmp."""
    return [place for place in source.find(build_machine()) if place.exists() and is_own_place(place)]


def _find_places(source: ForeignSource) -> list[Path]:
    found = list_own_places(source)
    if not found:
        raise InvalidInput(f"Cannot find data of {source.title} on this machine.", hint="Pass its PATH.")
    return found


def find_import_project(places: Sequence[Path], *, project: str | None, asks: bool = False, **flags: Any) -> str:
    """Return the project for data of another program: the named one, that of the folder with it, otherwise `default`.

    Data outside the working folder, such as in the home folder, can be about every project. If it `asks`, a person may
    choose the folder's project for it.
    """
    configured = load_command_settings(project=project, **flags).project
    if configured is not None:
        return configured

    async def find(app: App) -> tuple[FolderProject, Path]:
        folder = app.settings.path or Path.cwd()
        found = await find_folder_project(app.library, folder)
        return found, Path(get_choice_key(folder) if found.home is None else found.home.key)

    found, folder = run_with_app(find, makes_nothing=True, project=AUTO, **flags)
    if found.name == DEFAULT_PROJECT:
        return DEFAULT_PROJECT
    if all(place.resolve().is_relative_to(folder.resolve()) for place in places):
        return AUTO
    question = f'This data is not in a folder of project "{found.name}". Import it there, not to "{DEFAULT_PROJECT}"?'
    return AUTO if asks and is_interactive() and click.confirm(question, default=False, err=True) else DEFAULT_PROJECT


def run_import(
    source: ForeignSource, places: Sequence[Path], *, project: str | None, dry_run: bool, **flags: Any
) -> ForeignImport:
    """Import from the places, or count what an import would add. An item in two of them comes from the first."""
    into = find_import_project(places, project=project, **flags)

    async def work(app: App) -> ForeignImport:
        items, skipped, at = await asyncio.to_thread(_read_all, source, places)
        target = await _build_target(app, dry_run=dry_run, one_project=project is not None)
        outcome = ForeignImport(source.name, ", ".join(map(str, places)), dry_run)
        with show_progress("Importing") as progress:
            await import_foreign(
                items, outcome, skipped, target, app.clock, progress, at=at, mask=app.settings.mask_secrets
            )
        if source.list_transcripts is not None:
            transcripts = [each for place in places for each in source.list_transcripts(place)]
            await (_count_conversations if dry_run else _import_conversations)(app, transcripts, outcome)
        if not dry_run:
            await update_graph_files(app, outcome.projects)
        return outcome

    with report_interruption_of_import():
        return run_with_app(work, writes=not dry_run, project=into, **flags)


def _read_all(source: ForeignSource, places: Sequence[Path]) -> tuple[list[ForeignItem], Skipped, int]:
    """Return the items, the counts of what is skipped, and the time of the first place."""
    skipped = Skipped()
    items: list[ForeignItem] = []
    seen: set[str] = set()
    for place in places:
        found = [each for each in source.read(place, skipped) if not (isinstance(each, _WITH_ID) and each.id in seen)]
        seen |= {each.id for each in found if isinstance(each, _WITH_ID)}
        items += found
    return items, skipped, places[0].stat().st_mtime_ns // 1_000


async def _import_conversations(app: App, transcripts: Sequence[Transcript], outcome: ForeignImport) -> None:
    with show_progress("Reading conversations") as progress:
        imported = await app.history.import_given(transcripts, progress)
    for failure in imported.failures:
        raise InvalidInput(
            f"{failure.name} cannot be read completely: {failure.reason}",
            hint="Turns before this place are saved. Download the export again, then repeat the command.",
        )
    total = imported.total
    outcome.conversations, outcome.turns = total.conversations, total.turns
    outcome.updated += total.turns_changed
    outcome.masked = sorted({*outcome.masked, *total.masked})
    skipped = Counter(outcome.skipped) + total.skipped
    skipped["turn that is excluded, off or deleted here"] += total.turns_left_out
    outcome.skipped = dict(sorted((+skipped).items()))


async def _count_conversations(app: App, transcripts: Sequence[Transcript], outcome: ForeignImport) -> None:
    """Count what the files have, and what of it is not stored yet."""
    conversations, turns = await asyncio.to_thread(_collect_ids, transcripts)
    outcome.conversations = len(conversations) - await app.history.count_stored(conversations)
    outcome.turns = len(turns) - await app.history.count_stored(turns)
    for kind, becomes, count in (("conversation", "conversation", len(conversations)), ("message", "turn", len(turns))):
        outcome.kinds += [ImportedKind(kind, becomes, "history", count)] if count else []


def _collect_ids(transcripts: Sequence[Transcript]) -> tuple[set[str], set[str]]:
    """Return the ids that the conversations and turns have in the history."""
    conversations: set[str] = set()
    turns: set[str] = set()
    for transcript in transcripts:
        for portion in transcript.read_portions(None):
            for event in portion.events:
                if isinstance(event, Turn):
                    conversations.add(build_conversation_id(transcript.source, event.session))
                    turns.add(build_turn_id(transcript.source, event.key))
    return conversations, turns


async def _build_target(app: App, *, dry_run: bool, one_project: bool) -> ImportTarget:
    call = ToolCall(await read_session(app), "import")
    active = await app.project_rule.find_active(call) if app.settings.project is None else None
    main = active.name if active else await app.project_rule.find_pending_name(call) or DEFAULT_PROJECT

    async def open_project(name: str) -> RecordStore | None:
        if name == main and not dry_run:
            return await app.project_rule.open_to_write(call, None)
        try:
            project = await app.library.get_project(name)
        except NotFound:
            if dry_run:
                return get_empty_store()
            project = await app.library.create(name, "")
        if project.is_off:
            return None
        return (await app.library.open(project.name))[1]

    return ImportTarget(await app.library.open_user_store(), main, open_project, one_project)


@contextmanager
def report_interruption_of_import(done: str = "imported") -> Generator[None, None, None]:
    """Print after an interruption that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"Stopped. Everything {done} so far is saved. Run the command again to continue.", err=True)
        raise


def print_outcome(outcome: ForeignImport) -> None:
    if outcome.dry_run:
        build_console().print(build_table("items", [to_json(each) for each in outcome.kinds]))
    added = [
        *([format_count(outcome.conversations, "conversation")] if outcome.conversations else []),
        *([format_count(outcome.turns, "turn")] if outcome.turns else []),
        format_count(outcome.memories, "memory", "memories"),
        *([format_count(outcome.entities, "entity", "entities")] if outcome.entities else []),
        *([format_count(outcome.observations, "observation")] if outcome.observations else []),
        *([format_count(outcome.links, "relation")] if outcome.links else []),
    ]
    echo(
        f"{'Would add' if outcome.dry_run else 'Added'} {join_words(added)} from {outcome.place}"
        f"{f' to {join_words(outcome.projects)}' if outcome.projects else ''}; "
        f"updated {outcome.updated:,}, {outcome.unchanged:,} unchanged."
    )
    print_kept(outcome, *((count, f"skipped: {reason}") for reason, count in outcome.skipped.items()))
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)


class _Kept(Protocol):
    older: int
    forgotten: int


def print_kept(outcome: _Kept, *skipped: tuple[int, str]) -> None:
    """Print what an import did not change here, and what it skipped."""
    kept = ((outcome.older, "newer here, and kept unchanged"), (outcome.forgotten, "forgotten here, and stay so"))
    for count, what in (*kept, *skipped):
        if count:
            echo(f"  {count:,} {what}", err=True)
