"""Servers of others that searches may ask: whether they are there, and know this one."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from everkept.app.care.findings import Finding, Patient
from everkept.app.peering.roster import Roster
from everkept.core.peers import Peer, PeerFault

if TYPE_CHECKING:  # most have no peers
    from everkept.peers.asking import Met

CHECK = "peers"
COMMAND = "everkept peer check"


def check_peers(patient: Patient) -> Iterator[Finding]:
    """Nothing where none are known. One that is away is no fault of this installation."""
    listed = Roster(patient.folder).listed()
    for sentence in listed.warnings:
        yield Finding(CHECK, "advice", sentence)
    for met in asyncio.run(_asked(listed.peers)) if listed.peers else ():
        if isinstance(met, PeerFault):
            yield Finding(CHECK, "advice", f"{met.peer}: {met.reason}", COMMAND)
        else:
            yield Finding(CHECK, "ok", f"{met.peer} is there and knows us.")


async def _asked(peers: Sequence[Peer]) -> "list[Met | PeerFault]":
    from everkept.peers.asking import greeted

    return list(await asyncio.gather(*map(greeted, peers)))
