"""What is the owner's alone: to an account it is as if it did not exist."""

from collections.abc import Sequence

from everkept.core.accounts import acting
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
