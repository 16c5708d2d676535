"""Which records a call gives out or changes, for whoever notes that of it."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

from everkept.values import Value, field


class Touched(Value, frozen=False):
    """Of one call: the ids of records and links, each once, in the order in which they came."""

    ids: dict[str, None] = field(default_factory=dict[str, None])
    is_over: bool = False


_touched: ContextVar[Touched | None] = ContextVar("touched", default=None)


@contextmanager
def touching() -> Generator[Touched, None, None]:
    """Whatever is said to be touched within, in tasks of its own too, is in what this gives."""
    noted = Touched()
    token = _touched.set(noted)
    try:
        yield noted
    finally:
        noted.is_over = True  # for what goes on in tasks of its own
        _touched.reset(token)


def touched(ids: Iterable[str | None]) -> None:
    """Said where records are given out in an answer that may not name their ids, and where some
    are changed; costs nothing where nobody notes it."""
    noted = _touched.get()
    if noted is not None and not noted.is_over:
        noted.ids.update((each, None) for each in ids if each)
