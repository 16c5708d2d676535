"""Names of tools: as the servers behind the gateway have them, and as it offers them."""

import re
from collections.abc import Collection, Iterable
from itertools import islice

from everkept.families.gateway.model import PassThrough
from everkept.tools.schema import nearest

LONGEST = 128  # characters; the protocol's limit
PREFIXED = "__"  # between a server and its tool, as some clients show them

_MOST_COMPARED = 100  # names; another server may have any number of them, and of any length

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{LONGEST}}}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")


def is_name(text: object) -> bool:
    """Whether a tool may be called so."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def resolved(wanted: str, known: Collection[str]) -> str | None:
    """The tool that is meant: of that name, else of what follows a `__` in it, the longest first.

    A client shows `search` of the server `notes` as `notes__search`; a file may have it so too.
    """
    if wanted in known:
        return wanted
    start = wanted.find(PREFIXED)
    while start >= 0:
        bare = wanted[start + len(PREFIXED) :]
        if bare in known:
            return bare
        start = wanted.find(PREFIXED, start + 1)
    return None


def likeliest(wrong: str, known: Iterable[str]) -> str | None:
    """The name that was meant, if it is among the first and they are no longer than names are."""
    first = islice(known, _MOST_COMPARED)
    return nearest(wrong[:LONGEST], [name for name in first if len(name) <= LONGEST])


def passed_name(theirs: str, through: PassThrough) -> str | None:
    """What a tool that is passed through is called here; None where it is not offered.

    A new name from `rename` stands as it is, without the prefix.
    """
    if theirs in through.hide or (through.only is not None and theirs not in through.only):
        return None
    return through.rename.get(theirs, through.prefix + theirs)


def mended(name: str, taken: Collection[str] = ()) -> str:
    """The nearest name that a tool may have, and that none has yet."""
    name = (_FORBIDDEN.sub("_", name) or "tool")[:LONGEST]
    mended, number = name, 2
    while mended in taken:
        ending = f"_{number}"
        mended = name[: LONGEST - len(ending)] + ending
        number += 1
    return mended
