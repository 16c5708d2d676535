"""`everkept history-of`: the versions of one memory, each with what differs from the one before."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from everkept.app.app import App
from everkept.app.memory_table import MemoryVersion, find_memory, read_versions
from everkept.cli.completion import complete_memories
from everkept.cli.options import add_common_options
from everkept.cli.render import build_console, format_label, format_value, print_details, print_item
from everkept.cli.runner import print_json, read_session, require_project, run_with_app
from everkept.core.projects import USER_PROJECT
from everkept.core.records import Record
from everkept.core.text import format_count
from everkept.core.times import format_iso, format_local
from everkept.tools.schema import to_json

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
