"""Answers of the memory bank for people: files as text, matches as lines, a digest as a list."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from recollect.core.text import clipped

Row = Mapping[str, Any]

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def printed(out: Console, facts: Row) -> bool:
    """Whether the answer is one that is shown in a form of its own, and was."""
    show = next((show for keys, show in _FORMS if keys <= facts.keys()), None)
    if show is None:
        return False
    show(out, facts)
    return True


def words(name: str) -> str:
    """A name of the wire as people write it: `currentContext` as `current context`."""
    return _HUMP.sub(" ", name).replace("_", " ").lower()


def _file(out: Console, facts: Row) -> None:
    out.file.write(str(facts["content"]))


def _matches(out: Console, facts: Row) -> None:
    lines: Sequence[Row] = facts["results"]
    sections: Sequence[Row] = facts["sections"]
    for line in lines:
        out.print(Text(f"{line['file']}:{line['line']}: ", style="cyan") + Text(line["content"]))
    if sections:
        out.print(Text("\nSections that fit" if lines else "Sections that fit", style="bold"))
    for section in sections:
        place = f"{section['file']}:{section['line']}: "
        heading = section.get("heading") or ""
        out.print(Text(place, style="cyan") + Text(f"{heading}  {section['score']:.2f}"))
        out.print(Text(f"  {clipped(section['text'], 160)}", style="dim"))
    if not lines and not sections:
        out.print("Nothing found.")
    _notes(out, facts["metadata"])


def _digest(out: Console, facts: Row) -> None:
    _outline(out, facts["digest"])
    _notes(out, facts["metadata"])


def _bundle(out: Console, facts: Row) -> None:
    files: Mapping[str, Row] = facts.get("bundle") or facts["results"]
    for name, file in files.items():
        out.print(Text(f"==> {name} <==", style="bold"))
        out.file.write(f"{file.get('error') or file.get('content', '')}\n")
    _notes(out, facts["metadata"])


def _outline(out: Console, group: Row) -> None:
    for name, value in group.items():
        if isinstance(value, dict):
            _outline(out, cast(Row, value))
        elif value:
            out.print(Text(words(name).capitalize(), style="bold"))
            for item in cast(Sequence[Any], value if isinstance(value, list) else [value]):
                out.print(Text(f"  {_item(item)}"))


def _item(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item).replace("\n", "\n  ")
    entry = cast(Row, item)
    named = "  ".join(str(entry[key]) for key in ("date", "title") if entry.get(key))
    rest = [str(v) for k, v in entry.items() if k not in ("date", "title") and v]
    return f"{named}: {' '.join(rest)}" if named else " ".join(rest)


def _notes(out: Console, metadata: Row) -> None:
    notes: Sequence[str] = metadata.get("warnings") or ()
    for note in notes:
        out.print(Text(str(note), style="yellow"))


_FORMS: Sequence[tuple[set[str], Callable[[Console, Row], None]]] = (
    ({"content", "filename"}, _file),
    ({"results", "sections", "metadata"}, _matches),
    ({"digest", "metadata"}, _digest),
    ({"bundle", "metadata"}, _bundle),
)
