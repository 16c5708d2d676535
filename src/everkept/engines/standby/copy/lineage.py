"""Whether the database is the one that the copy here was made of, and has not lost any of it.

A server that kept everything in memory, or a backup that was put back, answers as if all were
well. What the copy has beyond it was acknowledged, and may be all that is left of it.
"""

import logging
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from uuid import uuid4

from everkept.core.copies import Holdings
from everkept.core.disk import make_folder, sync, usable
from everkept.core.ports import Library
from everkept.core.text import counted
from everkept.core.times import iso
from everkept.engines.standby.journal.journal import Journal
from everkept.errors import EverkeptError, StoreAway

OWN = "standby."  # how the keys of notes begin that belong to the copy and its database
# How the keys of its names begin, in both: a database with none of those that are known is
# another. Several programs that find it without one at the same moment give it one each.
LINEAGE = OWN + "lineage"
KEPT = OWN + "kept"  # where the copy of a database that has lost something is
_DRAFT = ".part"

log = logging.getLogger(__name__)


def names_in(notes: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(key, value) for key, value in notes.items() if key.startswith(LINEAGE)}


def without_own(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(OWN)}


async def named(primary: Library, known: Mapping[str, str]) -> Holdings:
    """What the database has, and a name of its own where nobody has given it one."""
    holdings = await primary.holdings()
    if names_in(holdings.notes) or names_in(known):
        return holdings
    name = uuid4().hex
    try:
        await primary.set_note(f"{LINEAGE}.{name}", name)
    except StoreAway:
        raise
    except EverkeptError as error:  # who may only read goes without
        log.debug("the database cannot be named: %r", error)
    return await primary.holdings()


async def expect_the_same(primary: Library, replica: Library, journal: Journal) -> None:
    """What waits is for the database that was here. Raises StoreAway where another answers."""
    waiting = journal.counts().waiting
    known = names_in(await replica.notes(LINEAGE)) if waiting else set[tuple[str, str]]()
    if known and known.isdisjoint(names_in(await primary.notes(LINEAGE))):
        raise StoreAway(
            f"Another database answers than the one that {counted(waiting, 'write')} here wait "
            f"for: bring that one back. To use this one, move {journal.folder} away first.",
        )


def is_another(theirs: Holdings, own: Holdings) -> bool:
    """Whether it is not the database that the copy is of, and lacks something that the copy has.

    What others have removed from the same database is ordinary.
    """
    known = names_in(own.notes)
    if not known or known & names_in(theirs.notes):
        return False
    return not _things(own) <= _things(theirs)


def _things(holdings: Holdings) -> set[str]:
    return {
        *(project.id for project in holdings.projects),
        *(token.id for token, _ in holdings.tokens),
        *holdings.workspaces,
        *(key for key in holdings.notes if not key.startswith(OWN)),
    }


def keep_aside(folder: Path, at: int) -> Path:
    """Copies the databases of a folder that others have open; gives where they are now."""
    from everkept.engines.sqlite.care.copying import copy_to, held

    target = _place_beside(folder, at)
    draft = target.with_name(target.name + _DRAFT)
    with ExitStack() as stack:
        stack.enter_context(usable(draft))
        shutil.rmtree(draft, ignore_errors=True)
        moment = stack.enter_context(held(folder, lenient=True))
        for name, source in moment.databases.items():
            make_folder((draft / name).parent)
            copy_to(source, draft / name, _quietly)
            _on_disk(draft / name)
        draft.rename(target)
    return target


def _place_beside(folder: Path, at: int) -> Path:
    moment = iso(at)[:19].replace("-", "").replace(":", "")
    names = (f"{folder.name}.before-{moment}Z{f'-{n}' if n else ''}" for n in count())
    return next(path for name in names if not (path := folder.with_name(name)).exists())


def _on_disk(path: Path) -> None:
    """What is to outlive the copy must not be lost with it."""
    with path.open("rb+") as file:
        sync(file.fileno())


def _quietly(_done: int, _pages: int) -> None:
    """Nobody waits for it."""
