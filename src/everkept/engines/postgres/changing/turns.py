"""A store's own row: whoever writes takes it first, so that the writers of a store take turns."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.connecting.news import note_change
from everkept.engines.postgres.connecting.wire import Answer
from everkept.engines.postgres.records.asking import ask, ask_last
from everkept.errors import NotFound, ProjectArchived
from everkept.values import Value

# One without a name belonged to a project that is deleted.
_STATE = "SELECT seq, moves, ages, is_closed FROM stores WHERE number = %s AND name IS NOT NULL"
# Not FOR UPDATE: rows that only name the store may come meanwhile, as counts of accesses do.
_TAKE = f"{_STATE} FOR NO KEY UPDATE"


class Place(Value):
    """A store among the others of its schema; the title is for whoever reads what went wrong."""

    number: int
    title: str


class State(Value):
    """What a store says of itself."""

    seq: int  # of the newest change
    moves: int  # vectors that came or went
    ages: int  # records and links that ever came
    is_closed: bool


def state(cursor: Cursor, place: Place) -> State:
    """Of a question that asks nothing behind it."""
    return found_state(place, ask_last(cursor, _STATE, place.number).fetchone())


def check_there(cursor: Cursor, place: Place) -> None:
    """Raises NotFound if its project was deleted."""
    found_state(place, ask(cursor, _STATE, place.number).fetchone())


def taken(cursor: Cursor, place: Place) -> State:
    """The store's row, which nobody else has before this transaction ends."""
    found = found_state(place, take(cursor, place).fetchone())
    check_open(place, found)
    return found


def take(cursor: Cursor, place: Place) -> Answer:
    """Asks for the row."""
    return ask(cursor, _TAKE, place.number)


def check_open(place: Place, found: State) -> None:
    """Raises ProjectArchived: what is put away can be read by who has it, and not written."""
    if found.is_closed:
        raise ProjectArchived(place.title)


def found_state(place: Place, row: tuple[Any, ...] | None) -> State:
    if row is None:
        raise NotFound("project", place.title, hint="It was deleted meanwhile.")
    return State(*row)


@contextmanager
def written(cursor: Cursor, place: Place, *, seq: int, ages: int) -> Generator[None, None, None]:
    """What is written inside goes out with the commit, and the store's new numbers behind it.

    Whoever follows is woken soon after the transaction. Where two things would stand for the same,
    it is the commit that raises Conflict.
    """
    yield
    ask(
        cursor,
        "UPDATE stores SET seq = %s, ages = %s WHERE number = %s",
        seq,
        ages,
        place.number,
    )
    note_change(cursor, place.number)
