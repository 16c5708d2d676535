"""Other servers as calls ask them: for the owner alone, and none before somebody does."""

from pathlib import Path

from everkept.core.accounts import acting
from everkept.core.peers import Asked, PeerQuestion


class OwnersPeers:
    """What others have granted, they have granted to the owner.

    An account's call finds nobody, as if none were known; so does a peer's, and no question goes
    on from server to server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def ask(self, question: PeerQuestion) -> Asked:
        if acting() is not None:
            return Asked(is_anybody=False)
        # Loaded here: most calls ask nobody.
        from everkept.peers.asking import HttpPeers
        from everkept.peers.book import PeerBook

        return await HttpPeers(PeerBook(self._folder)).ask(question)
