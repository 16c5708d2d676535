"""How often the questions of a store, and the tools that ask them, go to the server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import numpy as np
import pytest

from assistant import Assistant
from everkept.core.answers import Hops
from everkept.core.ports import RecordVector
from everkept.core.records import RecordFilter, Weights
from everkept.engines.postgres.library import PostgresLibrary
from everkept.engines.postgres.store import PostgresStore
from everkept.language.words import WordPhrase
from postgres_libraries import library_over
from postgres_server import shared
from postgres_trips import COMMITTED_AND_TOLD, Way
from proxies import running
from records import batch, entity, link, memory, record_ref
from upstreams import until

Question = Callable[[PostgresStore], Awaitable[object]]
QUESTIONS: dict[str, Question] = {
    "get": lambda store: store.get(["Ada", "Bob"]),
    "scan": lambda store: store.scan(RecordFilter(kinds=("entity",)), limit=3),
    "containing": lambda store: store.match_text("Ada", RecordFilter(), 3),
    "links": lambda store: store.find_links(["Ada"]),
    "walk": lambda store: store.walk(["Ada"], Hops(3)),
    "get_links": lambda store: store.get_links(["knows"]),
    "scan_links": lambda store: store.scan_links(deleted=None),
    "count": lambda store: store.count_live(),
    "how_many": lambda store: store.count_records(RecordFilter()),
    "changes": lambda store: store.read_changes(),
    "history": lambda store: store.read_history([record_ref("Ada")]),
    "revision": lambda store: store.get_revision(),
    "stamp": lambda store: store.get_stamp(),
    "tally": lambda store: store.tally(["entity"]),
    "scopes": lambda store: store.list_scopes("entity"),
    "authors": lambda store: store.list_authors(),
    "unembedded": lambda store: store.find_unembedded("model", ["entity"], 3),
    "vectors": lambda store: store.get_vectors("model", ["Ada"]),
    "accesses": lambda store: store.get_accesses(["Ada"]),
    "most_accessed": lambda store: store.list_most_accessed(3),
    "size": lambda store: store.measure_size(),
}
LISTS: dict[str, Callable[[PostgresLibrary], Awaitable[object]]] = {
    "projects": lambda library: library.list_projects(),
    "silences": lambda library: library.list_off_periods(),
    "notes": lambda library: library.list_notes(""),
    "tokens": lambda library: library.list_tokens(),
}


@pytest.fixture
async def way() -> AsyncGenerator[Way, None]:
    async with running(Way(shared())) as way:
        yield way


@pytest.fixture
async def library(way: Way) -> AsyncGenerator[PostgresLibrary, None]:
    library = library_over(way.database())
    user = await library.open_user_store()
    # Connections enough that none is opened while trips are counted.
    await asyncio.gather(*(user.get_revision() for _ in range(4)))
    yield library
    await library.close()


@pytest.fixture
async def store(way: Way, library: PostgresLibrary) -> PostgresStore:
    store = await library.open_user_store()
    way.count()
    await store.commit(batch(entity("Ada"), entity("Bob"), link("Ada", "knows", "Bob")))
    await until(lambda: way.transactions == COMMITTED_AND_TOLD)
    return store


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_takes_one_trip_and_one_transaction(way: Way, store: PostgresStore, name: str) -> None:
    ways = way.count()
    await QUESTIONS[name](store)
    assert (ways.trips, way.transactions) == (1, 1)


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_of_the_library_takes_one_trip_and_one_transaction(
    way: Way, library: PostgresLibrary, name: str
) -> None:
    ways = way.count()
    await LISTS[name](library)
    assert (ways.trips, way.transactions) == (1, 1)


async def test_a_word_query_takes_one_trip_to_count_and_one_to_find(way: Way, store: PostgresStore) -> None:
    ways = way.count()
    assert await store.match(WordPhrase(("ada",)), RecordFilter(), Weights(), 3)
    assert (ways.trips, way.transactions) == (2, 1)


async def test_a_question_by_meaning_takes_one_trip_to_find_and_one_to_end(
    way: Way, library: PostgresLibrary, store: PostgresStore
) -> None:
    vector = np.array([1.0, 0.0], np.float32)
    await store.put_vectors("model", [RecordVector("Ada", 1, vector)])
    await library.wait_until_settled()
    ways = way.count()
    near = await store.find_near("model", vector, RecordFilter(), 3, also=["Ada"])
    assert [match.id for match in near] == ["Ada"]
    assert (ways.trips, way.transactions) == (2, 1)


async def test_a_commit_is_one_transaction(way: Way, store: PostgresStore) -> None:
    way.count()
    await store.commit(batch(memory("said")))
    await until(lambda: way.transactions >= COMMITTED_AND_TOLD)
    assert way.transactions == COMMITTED_AND_TOLD


async def test_tools_ask_no_more_than_they_need(way: Way, library: PostgresLibrary) -> None:
    await library.create("shop", "")
    assistant = Assistant(library)
    await assistant.store("The kettle boils water for the tea.")
    await assistant.recall("kettle")

    async def transactions(tool: str, **arguments: str) -> int:
        await assistant.indexing.catch_up()
        way.count()
        await assistant.tools.get(tool).run(assistant.call(tool), arguments)
        return way.transactions

    # The project; authors of it and of the user; of each words and meaning; what was found. The
    # authors share one unless the second is asked when the first has gone out.
    assert await transactions("recall_memories", query="kettle tea") <= 8
    kept = {"type": "semantic", "scope": "project"}
    said = await transactions("store_memory", content="The office opens at nine.", **kept)
    # The project, what may be alike and its texts, the commit, and the one that tells.
    assert said <= 6
