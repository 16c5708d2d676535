from collections.abc import Sequence

import pytest

from everkept.accounts.account_library import OwnersFinder, OwnersSections
from everkept.core.answers import Finding, Findings, SearchType, SectionsFound
from everkept.core.sessions import Account, Call, Session, acting_as
from everkept.errors import NotFound

CALL = Call(Session(), "test")


class Files:
    name = "bank"

    async def sections(self, call: Call, query: str, limit: int) -> SectionsFound:
        return SectionsFound([], ["looked"])

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        return Findings([Finding("1", "section", query, 1.0, "keyword")])

    async def stamp(self, call: Call) -> object:
        return "files"


async def test_the_owner_finds_what_an_account_does_not() -> None:
    sections, finder = OwnersSections(Files()), OwnersFinder(Files())
    assert (await sections.sections(CALL, "x", 1)).notices == ["looked"]
    assert len((await finder.find(CALL, "x", ["keyword"], 1)).hits) == 1
    assert (finder.name, await finder.stamp(CALL)) == ("bank", "files")
    with acting_as(Account("anna")):
        with pytest.raises(NotFound):
            await sections.sections(CALL, "x", 1)
        assert (await finder.find(CALL, "x", ["keyword"], 1)).hits == []
        assert await finder.stamp(CALL) is None
