"""Lists of memories for people: the newest ones, counts by trait, or the versions of one memory."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, cast

import click
from rich.console import Console
from rich.text import Text

from everkept.app.app import App
from everkept.app.memory_table import (
    Flag,
    MemoryPage,
    MemorySelection,
    MemoryTable,
    MemoryVersion,
    find_memory,
    read_versions,
)
from everkept.cli.completion import complete_memories
from everkept.cli.memories import scope_option, since_option, tag_option, type_option, until_option
from everkept.cli.options import CountRange, add_common_options, parse_typed_time
from everkept.cli.render import build_console, format_label, format_value, print_details, print_item, print_memories
from everkept.cli.runner import echo, print_json, read_session, require_project, run_with_app
from everkept.core.projects import USER_PROJECT
from everkept.core.records import Record, RecordFilter
from everkept.core.text import format_count
from everkept.core.times import format_iso, format_local
from everkept.families.memories.model import MemoryView
from everkept.tools.schema import to_json

MIN_COUNT_WIDTH = 5  # of a column of counts


@click.command("list")
@add_common_options
@scope_option
@type_option
@tag_option
@since_option
@until_option
@click.option("--pinned", is_flag=True, help="Only pinned memories.")
@click.option("--automatic", is_flag=True, help="Only memories that hooks stored automatically.")
@click.option("--forgotten", is_flag=True, help="Only forgotten memories.")
@click.option("--all-projects", is_flag=True, help="Include every project that is not turned off.")
@click.option("--facets", is_flag=True, help="Count the matches by project, type, scope, tag, author and session.")
@click.option("--limit", type=CountRange(1, 10_000), default=20, show_default=True)
def list_(
    as_json: bool,
    scope: Sequence[str],
    types: Sequence[str],
    tags: Sequence[str],
    since: str | None,
    until: str | None,
    pinned: bool,
    automatic: bool,
    forgotten: bool,
    all_projects: bool,
    facets: bool,
    limit: int,
    **flags: Any,
) -> None:
    """List memories, newest first.

    Shows this project's memories and your user-scope memories, from every session. Use --all-projects for all projects.
    With --facets, prints counts instead. The counts of a trait ignore its own filter, so that they show the choices.
    """
    if facets:
        flags_of = {"pinned": pinned, "automatic": automatic, "forgotten": forgotten}
        wanted = MemorySelection(
            types=types,
            scopes=scope,
            tags=tags,
            flags=[cast(Flag, name) for name, is_asked in flags_of.items() if is_asked],
            after=parse_typed_time(since, "since"),
            before=parse_typed_time(until, "until", end=True),
        )
        _show_counts(wanted, everywhere=all_projects, as_json=as_json, **flags)
        return
    where = RecordFilter(
        scopes=tuple(scope),
        types=tuple(types),
        tags=tuple(tags),
        after=parse_typed_time(since, "since"),
        before=parse_typed_time(until, "until", end=True),
        pinned=pinned,
        automatic=automatic,
        deleted=forgotten,
    )

    async def work(app: App) -> tuple[str, list[dict[str, Any]]]:
        await require_project(app, flags)
        session = await read_session(app)
        found = await app.memory_access.list_newest(session, where, limit, everywhere=all_projects)
        if not found and not all_projects and not as_json:
            _hint_elsewhere(await app.memory_access.list_newest(session, where, 1, everywhere=True))
        listed = [_describe_memory(record, name if all_projects else None) for name, record in found]
        project = None if all_projects else await app.memory_access.find_project(session)
        return project.name if project else "this folder", listed

    meant, memories = run_with_app(work, **flags)
    if as_json:
        print_json({"memories": memories})
        return
    if automatic and not all_projects:
        echo(f"Automatic memories of {meant} and your user scope. To list all projects, pass --all-projects.")
    print_memories(build_console(), memories)


def _describe_memory(record: Record, project: str | None) -> dict[str, Any]:
    """Describe a memory as recall does, without a score."""
    shown = to_json(MemoryView.from_record(record, 0.0))
    place = {} if project is None else {"project": project}
    return {key: value for key, value in shown.items() if key != "relevance_score"} | place


def _hint_elsewhere(found: Sequence[tuple[str, Record]]) -> None:
    """Say that the empty list is not all that is stored."""
    for name, _ in found:
        echo(f'Project "{name}" has memories that match. To list all projects, pass --all-projects.', err=True)


def _show_counts(wanted: MemorySelection, *, everywhere: bool, as_json: bool, **flags: Any) -> None:
    async def work(app: App) -> MemoryPage:
        await require_project(app, flags)
        project = await app.memory_access.find_project(await read_session(app))
        place = None if everywhere else project.name if project else USER_PROJECT
        return await MemoryTable(app.guarded).read_page(place, wanted, limit=0)

    page = run_with_app(work, **flags)
    if as_json:
        print_json({"total": page.total, "facets": page.facets})
        return
    out = build_console()
    out.print(Text(format_count(page.total, "memory", "memories") + "."))
    width = max((len(f"{n:,}") for counts in page.facets.values() for n in counts.values()), default=0)
    for trait, counts in page.facets.items():
        if counts:
            out.print(Text(trait.capitalize(), style="bold"))
        for value, count in counts.items():
            out.print(Text(f"{count:>{max(width, MIN_COUNT_WIDTH)},}  ", style="cyan") + Text(value), soft_wrap=True)


MAX_COMPARED_WORDS = 4_000  # of both texts; longer ones are shown one after the other

_WORDS = re.compile(r"\s+|\S+")
_OPERATIONS = {"insert": "stored", "update": "changed", "delete": "forgotten", "restore": "restored"}


@click.command()
@add_common_options
@click.argument("memory_id", metavar="ID", shell_complete=complete_memories)
def history_of(as_json: bool, memory_id: str, **flags: Any) -> None:
    """Show every version of the memory with this ID, newest first, and what each one changed.

    Removed words are in [-…-] and added words in {+…+}. Also shows forgotten memories. To reverse a change, run
    `everkept undo CHANGE`.
    """

    async def work(app: App) -> tuple[str, Record, list[MemoryVersion]]:
        await require_project(app, flags)
        project = await app.memory_access.find_project(await read_session(app))
        place = project.name if project else USER_PROJECT
        name, store, record = await find_memory(app.guarded, place, memory_id)
        return name, record, await read_versions(name, store, record)

    place, record, versions = run_with_app(work, **flags)
    if as_json:
        rows = [to_json(version) | {"at": format_iso(version.at)} for version in versions]
        print_json({"memory_id": record.id, "project": place, "versions": rows})
        return
    out = build_console()
    out.print(Text(f"{record.id}  {place}  {format_count(len(versions), 'version')}", style="bold"), soft_wrap=True)
    for version, earlier in zip(versions, [*versions[1:], None], strict=True):
        _print_version(out, version, earlier)


def _print_version(out: Console, version: MemoryVersion, earlier: MemoryVersion | None) -> None:
    at = format_local(version.at)
    did = _OPERATIONS.get(version.operation, version.operation)
    print_item(out, f"{did}  {version.change}  {version.tool}  {version.client}", f"{at}  ")
    if earlier is None:
        print_details(out, version.values["text"], "default")
        return
    before, after = _flatten(earlier.values), _flatten(version.values)
    for name in {**before, **after}:
        if before.get(name, "") != after.get(name, ""):
            shown = draw_difference(before.get(name, ""), after.get(name, ""))
            print_details(out, shown if name == "text" else Text(f"{format_label(name)}: ") + shown)


def _flatten(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a version as texts, with each facet as a separate value."""
    whole: Mapping[str, Any] = to_json(values)
    single = {name: value for name, value in whole.items() if name != "facets"}
    return {name: format_value(value) for name, value in {**single, **whole["facets"]}.items()}


def draw_difference(before: str, after: str) -> Text:
    """Return the later text with its removed and added words marked, so that they also differ without color."""
    drawn = Text()
    for removed, added, kept in _compare_words(before, after):
        drawn.append(f"[-{removed}-]" if removed else "", style="red")
        drawn.append(f"{{+{added}+}}" if added else "", style="green")
        drawn.append(kept)
    return drawn


def _compare_words(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """Yield removed, added and kept words, in the order of the texts."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > MAX_COMPARED_WORDS:
        yield before, after, ""
        return
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield "", "", _join(old[i:j])
        else:
            yield _join(old[i:j]), _join(new[k:m]), ""


def _join(words: Sequence[str]) -> str:
    return "".join(words)
