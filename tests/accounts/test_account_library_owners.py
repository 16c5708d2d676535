from collections.abc import Sequence

import pytest

from everkept.accounts.account_library import OwnerFinder, OwnerSectionSearch
from everkept.core.answers import SearchFinding, SearchFindings, SearchType, SectionHits
from everkept.core.sessions import Account, Session, ToolCall, act_as
from everkept.errors import NotFound

CALL = ToolCall(Session(), "test")


class Files:
    name = "bank"

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        return SectionHits([], ["looked"])

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        return SearchFindings([SearchFinding("1", "section", query, 1.0, "keyword")])

    async def get_stamp(self, call: ToolCall) -> object:
        return "files"


async def test_the_owner_finds_what_an_account_does_not() -> None:
    sections, finder = OwnerSectionSearch(Files()), OwnerFinder(Files())
    assert (await sections.find_sections(CALL, "x", 1)).notices == ["looked"]
    assert len((await finder.find(CALL, "x", ["keyword"], 1)).hits) == 1
    assert (finder.name, await finder.get_stamp(CALL)) == ("bank", "files")
    with act_as(Account("anna")):
        with pytest.raises(NotFound):
            await sections.find_sections(CALL, "x", 1)
        assert (await finder.find(CALL, "x", ["keyword"], 1)).hits == []
        assert await finder.get_stamp(CALL) is None
