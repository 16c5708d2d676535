"""What a session is told when it starts: lines under headings, fenced, never more than allowed."""

from collections.abc import Mapping, Sequence

from everkept.core.tokens import token_count
from everkept.families.memories.fencing import fenced
from everkept.families.memories.filling import Entry, Filling
from everkept.values import Value

LONGEST = 7_500  # characters: clients put more than 8,000 aside
TITLE = "## Memory of earlier work\nFrom Everkept, on this machine."

BEFORE = "before"
PROJECT = "project"
TODOS = "todos"
USER = "user"
PAST = "past"
HEADINGS: Mapping[str, str] = {  # the first that has something may take half of the room
    BEFORE: "### This Session Before Its Compaction",
    PROJECT: "### Project Knowledge",
    TODOS: "### Open Todos",
    USER: "### User Preferences",
    PAST: "### Recent Sessions",
}

Sections = Mapping[str, Sequence[Entry]]


class Briefing(Value):
    """`ids` are those of what stands in the text; without any there is no text."""

    text: str
    ids: tuple[str, ...]


def briefing(sections: Sections, budget: int, more: str) -> Briefing:
    """As much of the sections as fits into the budget of tokens and a client's limit.

    `more` says where more is found.
    """
    entries = {name: list(sections.get(name, ())) for name in HEADINGS if sections.get(name)}
    room = budget - token_count(_framed("\n", more))
    while entries and room > 0:
        filling = Filling(entries, HEADINGS, room)
        body = filling.text()
        text = _framed(body, more) if body else ""
        if len(text) <= LONGEST:
            return Briefing(text, tuple(record.id for record in filling.used))
        room = room * LONGEST // len(text) - 1
    return Briefing("", ())


def without(sections: Sections, ids: set[str]) -> dict[str, list[Entry]]:
    """What is left when these are known already."""
    return {
        name: [entry for entry in entries if entry.record.id not in ids]
        for name, entries in sections.items()
    }


def _framed(body: str, more: str) -> str:
    return "\n".join(part for part in (TITLE, fenced(body), more) if part)
