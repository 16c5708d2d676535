"""Who shares an answer, and who ends it."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from everkept.engines.postgres.store import SharedQuery


class Shelf:
    """Answers with the length of each word, once it may."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.was_asked = asyncio.Event()
        self.ended = 0
        self.may_answer = asyncio.Event()

    async def answer(self, words: Sequence[str]) -> Mapping[str, int]:
        self.asked.append(list(words))
        self.was_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        return {word: len(word) for word in words}


async def test_who_asks_at_the_same_moment_shares_one_question() -> None:
    shelf = Shelf()
    shelf.may_answer.set()
    round_ = SharedQuery(shelf.answer)
    assert await asyncio.gather(*map(round_.ask, ("a", "bb", "a"))) == [1, 2, 1]
    assert await round_.ask("ccc") == 3
    assert shelf.asked == [["a", "bb"], ["ccc"]]


async def test_who_asks_later_does_not_wait_for_an_answer_that_was_begun() -> None:
    shelf = Shelf()
    round_ = SharedQuery(shelf.answer)
    first = asyncio.ensure_future(round_.ask("a"))
    await shelf.was_asked.wait()
    second = asyncio.ensure_future(round_.ask("bb"))
    shelf.may_answer.set()
    assert await asyncio.gather(first, second) == [1, 2]
    assert shelf.asked == [["a"], ["bb"]]


async def test_only_the_last_who_stops_waiting_ends_it() -> None:
    shelf = Shelf()
    round_ = SharedQuery(shelf.answer)
    first, second = (asyncio.ensure_future(round_.ask(word)) for word in ("a", "bb"))
    await shelf.was_asked.wait()
    for waiting, ended in ((first, 0), (second, 1)):
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        assert shelf.ended == ended


async def test_a_failure_reaches_everybody_who_asked_for_it() -> None:
    async def fail(_words: Sequence[str]) -> Mapping[str, int]:
        raise LookupError

    round_ = SharedQuery(fail)
    told = await asyncio.gather(*map(round_.ask, "ab"), return_exceptions=True)
    assert [type(each) for each in told] == [LookupError, LookupError]
