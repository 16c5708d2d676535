"""Search across families: what each is asked, what is kept of that, and cursors of pages."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast

from everkept.core.sessions import Call
from everkept.errors import InvalidInput
from everkept.values import Value, field

KEPT_SEARCHES = 10_000  # questions that a library remembers

SearchType = Literal["semantic", "keyword", "graph"]


class Search(Value):
    """A question that somebody asked, as this machine keeps it: no secret is in it."""

    at: int
    tool: str
    query: str
    results: int
    milliseconds: float
    session: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SearchBook(Protocol):
    """Keeps what was asked, in the background: no reader waits for it."""

    def note(self, search: Search) -> None: ...

    async def newest(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        """With what is noted but not stored yet, the newest first."""
        ...


class SectionHit(Value):
    """A part of a file that fits a question; `line` is the first of it, counted from 1."""

    file: str
    line: int
    text: str
    score: float
    uri: str
    heading: str | None = None


class SectionsFound(Value):
    """The best parts first; `notices` are sentences about what could not be looked at."""

    hits: list[SectionHit]
    notices: list[str]


class SectionSearch(Protocol):
    """Finds the parts of the files that people and assistants share."""

    async def sections(self, call: Call, query: str, limit: int) -> SectionsFound:
        """In the files that the call means; NotFound where there are none."""
        ...


class Finding(Value):
    """Something that one family found, in a form that all share."""

    id: str
    type: str  # as in `memory`, `entity`, `section`, `conversation`, `code`
    content: str
    score: float  # 0 to 1
    search_type: SearchType
    title: str | None = None
    project: str | None = None
    at: int | None = None


class Findings(Value):
    """The best first; `notices` are sentences about what could not be looked at."""

    hits: list[Finding]
    notices: list[str] = field(default_factory=list[str])


class Finder(Protocol):
    """Searches what one family keeps, for a search over all of them."""

    @property
    def name(self) -> str:
        """What is searched, as a person calls it: `memories`."""
        ...

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        """By those of the ways that it knows; nothing where there is nothing to be searched."""
        ...

    async def stamp(self, call: Call) -> object:
        """Another value once an answer may be another."""
        ...


def cursor_of(*position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def position_of(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """What `cursor_of` was given, if it was values of these kinds."""
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError:
        found = None
    position = tuple(cast(list[Any], found)) if isinstance(found, list) else ()
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise InvalidInput(
            "`cursor` is not one that this tool gave out.", argument="cursor", value=cursor[:100]
        )
    return position
