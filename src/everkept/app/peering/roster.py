"""The list of peers as commands change it: one at a time, and never half."""

from pathlib import Path

from everkept.core.locks import WaitingLock
from everkept.core.peers import Peer, checked_name
from everkept.peers.book import Listed, PeerBook

LOCK = "peers.lock"


class Roster:
    """Those of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._book = PeerBook(folder)
        self._lock = WaitingLock(folder / LOCK, "A change of the peers")

    def listed(self) -> Listed:
        return self._book.listed()

    def add(self, peer: Peer) -> None:
        """Raises Conflict where the name is taken."""
        with self._lock.held():
            self._book.add(peer)

    def remove(self, name: str) -> None:
        with self._lock.held():
            self._book.remove(checked_name(name))
