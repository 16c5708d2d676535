"""How the message of an error begins: with what was attempted."""

from collections.abc import Generator
from contextlib import contextmanager

from everkept.core.text import clipped
from everkept.errors import EverkeptError, visible

_LONGEST = 120  # characters of a name; nobody needs a thousand of one that is wrong


@contextmanager
def attempting(
    what: str, filename: str | None = None, *, unless: tuple[type[EverkeptError], ...] = ()
) -> Generator[None, None, None]:
    """Errors begin with what was attempted, and name the file only there."""
    beginning = what if filename is None else f"{what} {_shown(filename)}"
    try:
        yield
    except EverkeptError as error:
        if not isinstance(error, unless):
            error.message = f"{beginning}: {_unnamed(error, filename)}"
        raise


def _unnamed(error: EverkeptError, filename: str | None) -> str:
    if filename is None:
        return error.message
    said = error.message.removesuffix(f": {visible(filename)}.")
    if said != error.message:
        return f"{said}."
    shown = error.facts.get("name", visible(filename))
    quoted = f'"{shown}" '
    return f"it {said.removeprefix(quoted)}" if said.startswith(quoted) else said


def _shown(filename: str) -> str:
    return visible(clipped(filename, _LONGEST) if filename.isprintable() else filename[:_LONGEST])
