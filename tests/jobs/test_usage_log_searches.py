from collections.abc import Sequence
from typing import Any

from everkept.core.answers import SearchRecord
from everkept.core.sessions import Account, act_as
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import StoreBusy
from everkept.jobs.usage_log import BatchedSearches
from everkept.values import replace
from records import DAY_ONE


def asked(query: str, at: int = DAY_ONE, session: str | None = None) -> SearchRecord:
    return SearchRecord(at, "recall_previous_discussions", query, 3, 1.5, session, {"limit": 10})


async def test_what_was_asked_is_known_at_once_and_stored_at_the_end() -> None:
    library = MemoryLibrary()
    book = BatchedSearches(library)
    book.note(asked("one"))
    book.note(asked("two", DAY_ONE + 1))
    assert [s.query for s in await book.list_newest()] == ["two", "one"]
    assert await library.list_searches() == []
    await book.close()
    assert [s.query for s in await library.list_searches()] == ["two", "one"]
    assert await book.list_newest() == await library.list_searches()


async def test_the_newest_of_what_is_stored_and_what_waits_come_first() -> None:
    library = MemoryLibrary()
    await library.add_searches([asked("old", DAY_ONE - 2), asked("mine", DAY_ONE - 1, "a")])
    book = BatchedSearches(library)
    book.note(asked("new", DAY_ONE, "a"))
    book.note(asked("other", DAY_ONE + 1, "b"))
    assert [s.query for s in await book.list_newest(limit=3)] == ["other", "new", "mine"]
    assert [s.query for s in await book.list_newest(session="a")] == ["new", "mine"]
    await book.close()


class Looked(MemoryLibrary):
    """Somebody looks, and asks on, when the first batch is stored but not yet struck off."""

    book: BatchedSearches
    seen: list[str] | None = None

    async def add_searches(self, searches: Sequence[SearchRecord]) -> None:
        await super().add_searches([replace(search) for search in searches])
        if self.seen is None:
            self.seen = [s.query for s in await self.book.list_newest()]
            self.book.note(asked("meanwhile", DAY_ONE + 5))


async def test_nothing_is_doubled_or_lost_while_a_batch_is_stored() -> None:
    library = Looked()
    library.book = BatchedSearches(library)
    library.book.note(asked("one"))
    await library.book.close()
    assert library.seen == ["one"]
    assert [s.query for s in await library.list_searches()] == ["meanwhile", "one"]


class Broken(MemoryLibrary):
    async def add_searches(self, searches: Sequence[SearchRecord]) -> None:
        raise StoreBusy("Another process writes.")

    async def list_searches(self, **_: Any) -> list[SearchRecord]:
        raise StoreBusy("Another process writes.")


async def test_who_asks_does_not_suffer_when_the_log_fails() -> None:
    book = BatchedSearches(Broken())
    book.note(asked("one"))
    assert [s.query for s in await book.list_newest()] == ["one"]
    await book.close()
    assert await book.list_newest() == []


async def test_a_book_without_notes_closes() -> None:
    await BatchedSearches(MemoryLibrary()).close()


async def test_an_account_sees_what_it_asked_itself_and_the_owner_all_of_it() -> None:
    library = MemoryLibrary()
    book = BatchedSearches(library)
    for at, name in enumerate(("anna", "bob")):
        with act_as(Account(name)):
            book.note(asked(f"{name} in a session", DAY_ONE + at, "s1"))
            book.note(asked(f"{name} in none", DAY_ONE + 2 + at))
    book.note(asked("owner", DAY_ONE + 9, "s1"))

    async def seen() -> None:
        with act_as(Account("anna")):
            assert [(s.query, s.session) for s in await book.list_newest()] == [
                ("anna in none", None),
                ("anna in a session", "s1"),
            ]
            assert [s.query for s in await book.list_newest(session="s1")] == ["anna in a session"]
            assert len(await book.list_newest(limit=1)) == 1
            assert await book.list_newest(session="account:bob/s1") == []
        with act_as(Account("ann")):
            assert await book.list_newest() == []
        assert len(await book.list_newest()) == 5
        assert [s.query for s in await book.list_newest(session="s1")] == ["owner"]

    await seen()
    await book.close()
    await seen()
