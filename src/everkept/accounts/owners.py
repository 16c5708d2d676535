"""What is the owner's alone, search of peers included: to an account it does not exist."""

from collections.abc import Sequence
from pathlib import Path

from everkept.core.accounts import acting
from everkept.core.peers import Asked, PeerQuestion
from everkept.core.search_ports import Finder, Findings, SearchType, SectionSearch, SectionsFound
from everkept.core.sessions import Call
from everkept.errors import NOWHERE, BankNotFound


class OwnersSections:
    """Parts of files that no account sees."""

    def __init__(self, sections: SectionSearch) -> None:
        self._sections = sections

    async def sections(self, call: Call, query: str, limit: int) -> SectionsFound:
        if acting() is not None:
            raise BankNotFound(NOWHERE)
        return await self._sections.sections(call, query, limit)


class OwnersFinder:
    """A search that finds nothing for an account."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @property
    def name(self) -> str:
        return self._finder.name

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        return Findings([]) if acting() else await self._finder.find(call, query, ways, limit)

    async def stamp(self, call: Call) -> object:
        return None if acting() else await self._finder.stamp(call)


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
        from everkept.peers.client import HttpPeers
        from everkept.peers.peer_file import PeerBook

        return await HttpPeers(PeerBook(self._folder)).ask(question)
