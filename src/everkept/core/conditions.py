"""What memory is kept in, how that is doing, and whether an answer came from elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from everkept.values import Value

Engine = Literal["sqlite", "memory", "surreal", "postgres"]
Mode = Literal["embedded-file", "embedded-memory", "local-server", "remote"]
Reachable = Literal["connected", "reconnecting", "degraded"]


class Condition(Value):
    """What a library is kept in, and how that is doing."""

    engine: Engine
    mode: Mode
    status: Reachable = "connected"
    version: str = ""  # of the engine, once it is known
    place: str = ""  # a folder or an address, without any secret
    since: int | None = None  # when it was last seen to go, where it is not connected
    reason: str = ""  # why
    never_reached: bool = False  # nor was it ever, from this folder: the address may be wrong
    is_catching_up: bool = False  # it answers, and is brought what waited before it is asked
    waiting: int = 0  # writes that are kept here until it is back
    set_aside: int = 0  # writes that could not be made there when it was back
    copy_at: int | None = None  # when the copy here was last level with it, as far as is known
    accounts_at: int | None = None  # when that knew last who has a token, and what each sees
    copy_kept: str = ""  # where that copy is kept, of a database that has lost something since


class Absence(Value):
    """Why the engine itself was not asked, as it was known at that moment."""

    since: int | None = None
    # It answers, and is not asked before what waited has been brought over.
    is_catching_up: bool = False
    never_reached: bool = False  # from this folder


UNTOLD = Absence()


class Answering(Value, frozen=False):
    """One call that is being answered."""

    from_replica: bool = False  # something was read from what was last seen
    kept_here: bool = False  # something was written that waits for the engine to be back
    absence: Absence = UNTOLD  # when the first of that was noted
    is_over: bool = False

    @property
    def is_degraded(self) -> bool:
        return self.from_replica or self.kept_here


_answering: ContextVar[Answering | None] = ContextVar("answering", default=None)


@contextmanager
def answering() -> Generator[Answering, None, None]:
    """Whatever is asked within, in tasks of its own too, is noted in what this gives."""
    noted = Answering()
    token = _answering.set(noted)
    try:
        yield noted
    finally:
        noted.is_over = True  # for what goes on in tasks of its own
        _answering.reset(token)


def note_replica(absence: Absence = UNTOLD) -> None:
    """Something was read from what was last seen of an engine that is away."""
    if noted := _noted(absence):
        noted.from_replica = True


def reads_replica() -> bool:
    """Whether the call that is being answered has read what was last seen: the rest of it does."""
    noted = _answering.get()
    return noted is not None and noted.from_replica and not noted.is_over


def note_kept_here(absence: Absence = UNTOLD) -> None:
    """Something was written that waits until the engine is back."""
    if noted := _noted(absence):
        noted.kept_here = True


def _noted(absence: Absence) -> Answering | None:
    noted = _answering.get()
    if noted is not None and not noted.is_degraded:
        noted.absence = absence
    return noted
