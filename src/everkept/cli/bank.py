"""Answers of the memory bank for people: files as text, matches as lines, the rest as outlines."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from everkept.core.text import clipped
from everkept.retrieval.excerpts import excerpt

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


def plain(value: Any) -> str:
    """A value as people write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(plain(item) for item in cast(list[Any], value))
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


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
        shown = excerpt(section["text"], facts["query"], 160)
        place = f"{section['file']}:{section['line'] + shown.skipped}: "
        heading = section.get("heading") or ""
        out.print(Text(place, style="cyan") + Text(f"{heading}  {section['score']:.2f}"))
        out.print(Text(f"  {clipped(shown.text, 170)}", style="dim"))
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


def _backups(out: Console, facts: Row) -> None:
    """One line each, never cut: the id is what is typed to restore it."""
    backups: Sequence[Row] = facts["backups"]
    for backup in backups:
        count = backup.get("fileCount")
        known = [f"{count} files" if count is not None else "", backup["verified"]]
        if backup.get("otherBank"):
            known.append(f"of {backup['bank']}")
        line = Text(backup["id"], style="cyan") + Text("  " + "  ".join(filter(None, known)))
        out.print(line, soft_wrap=True)
        for problem in backup.get("problems") or ():
            out.print(Text(f"  {problem}", style="yellow"), soft_wrap=True)
    if not backups:
        out.print("No backups.")


def _nodes(out: Console, facts: Row) -> None:
    """Each entity with what is known of it, and then what belongs to none that is shown."""
    entities: Sequence[Row] = facts["entities"]
    names = {entity["id"]: str(entity["name"]) for entity in entities}
    observations: list[Row] = list(facts["observations"])
    relations = [_relation(relation, names) for relation in facts["relations"]]
    for entity in entities:
        head = Text(f"{entity['name']} ({entity['entityType']})", style="bold")
        out.print(head + Text(f"  {entity['id']}", style="dim"), soft_wrap=True)
        if entity.get("attrs"):
            pairs = cast(Row, entity["attrs"]).items()
            _line(out, ", ".join(f"{name}: {plain(value)}" for name, value in pairs))
        own = [one for one in observations if one["entityId"] == entity["id"]]
        listed = cast(Sequence[Row], entity.get("observations") or own)
        for observation in listed:
            _line(out, f"· {observation['text']}", observation.get("id"))
        for _, verb, target in (r for k, r in relations if k in (entity["id"], entity["name"])):
            _line(out, f"{verb} → {target}")
    shown = {*names, *names.values()}
    for observation in (one for one in observations if one["entityId"] not in names):
        _line(out, f"{observation['entityName']}: {observation['text']}", observation.get("id"))
    for source, verb, target in (r for k, r in relations if k not in shown):
        _line(out, f"{source} {verb} → {target}")
    if not entities and not observations:
        out.print("Nothing found.")


def _relation(relation: Row, names: Mapping[str, str]) -> tuple[str, tuple[str, str, str]]:
    """What it says of its beginning, and from, verb and to by name where it is known."""
    verb = str(relation["relationType"])
    if "fromId" not in relation:
        return relation["from"], (relation["from"], verb, relation["to"])
    source, target = str(relation["fromId"]), str(relation["toId"])
    return source, (names.get(source, source), verb, names.get(target, target))


def _line(out: Console, text: str, mark: str | None = None) -> None:
    marked = Text(f"  {mark}", style="dim") if mark else Text()
    out.print(Text(f"  {text}") + marked, soft_wrap=True)


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
    ({"backups", "metadata"}, _backups),
    ({"entities", "observations", "relations"}, _nodes),
)
