import asyncio
from typing import Any

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.retrieval import candidates
from everkept.retrieval.profile import SearchProfile
from everkept.values import replace
from memory_shelf import DAY, MEMORIES, Shelf, memory
from records import DAY_ONE

KEYWORD = replace(MEMORIES, strategy="keyword")
FORGOTTEN_TOO = RecordFilter(deleted=None)
PORTS = {f"port {number}" for number in range(7)}
SHORT = 0.5  # seconds; what is waited for here never comes


class Faltering:
    """A store that answers one sort of question so many times, and then never again."""

    def __init__(self, store: Any, name: str, times: int) -> None:
        self._store = store
        self._name = name
        self._left = times

    scan_pages = RecordStore.scan_pages  # which asks for each page here

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._store, name)
        if name != self._name:
            return answer

        async def falter(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                await asyncio.Event().wait()
            return await answer(*args, **more)

        return falter


@pytest.fixture(params=["keyword", "vector", "hybrid"])
def profile(request: pytest.FixtureRequest) -> SearchProfile:
    return replace(MEMORIES, strategy=request.param)


async def test_what_was_not_stored_yet_was_not_known(shelf: Shelf) -> None:
    await shelf.put(memory("the port is 1"))
    later = DAY_ONE + DAY
    await shelf.put(memory("the port is 2", created_at=later), at=later)
    assert await shelf.texts("port", as_of=DAY_ONE) == ["the port is 1"]
    assert await shelf.texts("port", as_of=DAY_ONE - 1) == []
    assert len(await shelf.texts("port", as_of=later)) == 2


async def test_an_old_version_is_found_by_its_own_words(shelf: Shelf) -> None:
    await shelf.put(memory("the queue is RabbitMQ", id="q"), memory("the cache is Redis"))
    await shelf.change("q", DAY_ONE + DAY, text="the queue is Redis Streams")
    await shelf.change("q", DAY_ONE + 2 * DAY, text="the queue is Kafka", importance=0.9)

    first = (await shelf.search("RabbitMQ", as_of=DAY_ONE)).hits[0].record
    assert (first.text, first.importance, first.version) == ("the queue is RabbitMQ", 0.5, 1)
    second = (await shelf.search("queue", as_of=DAY_ONE + DAY)).hits[0].record
    assert (second.text, second.version) == ("the queue is Redis Streams", 2)
    now = (await shelf.search("queue", as_of=DAY_ONE + 2 * DAY)).hits[0].record
    assert (now.text, now.importance, now.version) == ("the queue is Kafka", 0.9, 3)

    assert "the queue is Kafka" not in await shelf.texts("Kafka", KEYWORD, as_of=DAY_ONE)


async def test_what_was_forgotten_since_was_known_then(shelf: Shelf) -> None:
    await shelf.put(memory("the port is 1"), memory("the port is 2"))
    await shelf.forget("the port is 1", DAY_ONE + DAY)
    assert await shelf.texts("port", as_of=DAY_ONE + DAY) == ["the port is 2"]
    found = await shelf.search("port", as_of=DAY_ONE)
    assert {hit.record.text for hit in found.hits} == {"the port is 1", "the port is 2"}
    assert all(hit.record.deleted_at is None for hit in found.hits)


async def test_filters_look_at_what_a_record_was(shelf: Shelf) -> None:
    await shelf.put(memory("the port", id="p", tags=("old",)))
    await shelf.change("p", DAY_ONE + DAY, tags=("new",))
    old, new = RecordFilter(tags=("old",)), RecordFilter(tags=("new",))
    assert await shelf.texts("port", where=old, as_of=DAY_ONE) == ["the port"]
    assert await shelf.texts("port", where=new, as_of=DAY_ONE) == []
    assert await shelf.texts("port", where=new, as_of=DAY_ONE + DAY) == ["the port"]


async def test_a_record_whose_text_is_the_same_keeps_its_meaning(shelf: Shelf) -> None:
    await shelf.put(memory("authentication by passkey", id="a"), memory("lunch at noon"))
    await shelf.change("a", DAY_ONE + DAY, importance=0.9)
    found = await shelf.search("authenticating", replace(MEMORIES, strategy="vector"), as_of=DAY_ONE)
    assert (found.hits[0].record.id, found.hits[0].record.importance) == ("a", 0.5)


async def test_a_vector_of_today_says_nothing_about_an_older_text(shelf: Shelf) -> None:
    await shelf.put(memory("lunch is at noon", id="a"), memory("the parser is in Rust"))
    await shelf.change("a", DAY_ONE + DAY, text="authentication by passkey")
    found = await shelf.search("authenticating", as_of=DAY_ONE)
    assert "a" not in [hit.record.id for hit in found.hits]
    assert (await shelf.search("authenticating")).hits[0].record.id == "a"


async def test_rare_words_count_more_in_the_past_too(shelf: Shelf) -> None:
    await shelf.put(*(memory(f"the service number {number}") for number in range(20)), memory("the gateway", id="g"))
    await shelf.change("g", DAY_ONE + DAY, text="gone")
    assert (await shelf.texts("service gateway", KEYWORD, as_of=DAY_ONE))[0] == "the gateway"


async def test_forgotten_memories_are_found_on_request(shelf: Shelf, profile: SearchProfile) -> None:
    await shelf.put(memory("the port is 1"), memory("the port is 2"))
    await shelf.forget("the port is 1", DAY_ONE + DAY)
    assert await shelf.texts("port", profile) == ["the port is 2"]
    if profile.strategy != "vector":
        found = await shelf.texts("port", profile, where=FORGOTTEN_TOO)
        assert set(found) == {"the port is 1", "the port is 2"}


async def test_forgotten_memories_alone_can_be_asked_for(shelf: Shelf) -> None:
    await shelf.put(memory("the port is 1"), memory("the port is 2"))
    await shelf.forget("the port is 1", DAY_ONE + DAY)
    assert await shelf.texts("port", where=RecordFilter(deleted=True)) == ["the port is 1"]
    assert await shelf.texts("elephant", KEYWORD, where=FORGOTTEN_TOO) == []


async def test_what_was_forgotten_before_stays_so_unless_asked_for(shelf: Shelf) -> None:
    await shelf.put(memory("the port is 1"), memory("the port is 2"))
    await shelf.forget("the port is 1", DAY_ONE + DAY)
    later = DAY_ONE + 2 * DAY
    assert await shelf.texts("port", as_of=later) == ["the port is 2"]
    found = await shelf.texts("port", where=FORGOTTEN_TOO, as_of=later)
    assert set(found) == {"the port is 1", "the port is 2"}


async def seven_that_changed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are read at once."""
    monkeypatch.setattr(candidates, "CHUNK_RECORDS", 2)
    await shelf.put(*(memory(text, id=text) for text in sorted(PORTS)), memory("no port at all"))
    for text in PORTS:
        await shelf.change(text, DAY_ONE + DAY, text=f"the new {text}")


async def test_however_many_have_changed_since_each_is_given_as_it_was(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seven_that_changed(shelf, monkeypatch)
    found = await shelf.search("port", KEYWORD, as_of=DAY_ONE)
    assert {hit.record.text for hit in found.hits} == {*PORTS, "no port at all"}
    assert found.notices == []


async def test_however_many_are_forgotten_all_are_found_on_request(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "CHUNK_RECORDS", 2)
    await shelf.put(*(memory(text) for text in sorted(PORTS)))
    for text in PORTS:
        await shelf.forget(text, DAY_ONE + DAY)
    assert set(await shelf.texts("port", where=FORGOTTEN_TOO)) == PORTS


@pytest.mark.parametrize(("asked_for", "times", "left"), [("read_history", 1, 2), ("scan", 3, 6)])
async def test_what_cannot_be_read_in_time_is_left_out_and_said_to_be(
    shelf: Shelf, profile: SearchProfile, monkeypatch: pytest.MonkeyPatch, asked_for: str, times: int, left: int
) -> None:
    await seven_that_changed(shelf, monkeypatch)
    slow = Shelf([Faltering(shelf.stores[0], asked_for, times)], shelf.embedder)
    found = await slow.search("port", profile, as_of=DAY_ONE, time_limit=SHORT)
    texts = {hit.record.text for hit in found.hits}
    assert texts <= {*PORTS, "no port at all"}
    assert "no port at all" in texts
    if profile.strategy != "vector":
        assert len(texts & PORTS) == left
    assert [notice.code for notice in found.notices] == ["partial_results"]
    assert "past" in found.notices[0].message


async def test_what_changes_while_the_past_is_read_is_not_given_as_past(shelf: Shelf) -> None:
    await shelf.put(memory("port 1", id="p"), memory("port 2"))

    class Meanwhile:
        """Somebody writes as soon as the past has been read."""

        def __getattr__(self, name: str) -> Any:
            return self.match if name == "match" else getattr(shelf.stores[0], name)

        async def match(self, *args: Any) -> Any:
            await shelf.change("p", DAY_ONE + DAY, text="the new port 1")
            return await shelf.stores[0].match(*args)

    store: Any = Meanwhile()
    found = await Shelf([store], shelf.embedder).search("port", KEYWORD, as_of=DAY_ONE)
    assert [hit.record.text for hit in found.hits] == ["port 2"]
