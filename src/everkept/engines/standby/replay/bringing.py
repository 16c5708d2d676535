"""Bringing what waits to the database that is back."""

from everkept.core.ports import Library
from everkept.core.rights import RightsOf
from everkept.engines.standby.journal.journal import Journal
from everkept.engines.standby.reaching import Reaching
from everkept.engines.standby.replay.replaying import Progress, replay


async def bring_over(
    journal: Journal, primary: Library, reaching: Reaching, rights_of: RightsOf
) -> None:
    """All of it in its order; then the database counts as back, before anything is added."""
    done = aside = 0
    while True:
        replayed = await replay(
            journal, primary, on_progress=_told_to(reaching), rights_of=rights_of
        )
        done, aside = done + replayed.count, aside + replayed.aside
        async with journal.writing():
            if not journal.counts().waiting:
                reaching.arrived(_brought(done, aside))
                return


def _brought(done: int, aside: int) -> str:
    kept = "no write was kept here" if not done else f"{_writes(done)} kept here and brought over"
    left = f"; {_writes(aside)} set aside, and `everkept journal` tells why" if aside else ""
    return kept + left


def _writes(count: int) -> str:
    return "1 write was" if count == 1 else f"{count} writes were"


def _told_to(reaching: Reaching) -> Progress:
    """What is brought over is told to the user when all of it is, and to who waits as it goes."""
    before = 0

    def tell(gone: int, _waiting: int) -> None:
        nonlocal before
        reaching.went(gone - before)
        before = gone

    return tell
