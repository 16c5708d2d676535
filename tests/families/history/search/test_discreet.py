"""What can be read of past conversations by who may not see those of some folders."""

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Weights, Where
from everkept.core.walking import Hops
from everkept.embedders.hashing import HashingEmbedder
from everkept.engines.memory.store import MemoryStore
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN
from everkept.families.history.search.discreet import PASSED, Discreet, folders_of, without
from everkept.language.words import Phrase
from making import batch, link
from telling import SHOP, Written, assistant, embed, tell, user

BLOG = "/home/ann/blog"
# What nobody needs who only asks: changes, what only the keeper of a store does, and reads that
# would tell what is hidden.
WITHHELD = {
    "accesses",
    "changes",
    "check",
    "commit",
    "get_links",
    "history",
    "most_accessed",
    "note_accesses",
    "purge",
    "put_vectors",
    "redact",
    "restock",
    "revision",
    "scan_links",
    "size",
    "sources_of",
    "subgraph",
    "vectors",
}
PORT = {name for name in vars(RecordStore) if not name.startswith("_")}


@pytest.fixture
async def full() -> RecordStore:
    store = MemoryStore()
    for session, folder in (("s1", SHOP), ("s2", BLOG)):
        code = (Written(f"def zebra():\n    {session}()", "python", "zebra.py", ("zebra",)),)
        said = assistant("The zebra is fixed.", code=code)
        await tell(store, session, user("The zebra fails"), said, project=folder)
    return store


@pytest.fixture
async def seen(full: RecordStore) -> RecordStore:
    return without(full, await folders_of(full), frozenset({SHOP}))


async def ids_of(store: RecordStore, kind: str, folder: str) -> list[str]:
    found = await store.scan(Where(kinds=(kind,), scopes=(folder,)))
    return [record.id for record in found]


def test_every_way_to_read_is_filtered_or_passed_or_not_there() -> None:
    defined = {name for name in vars(Discreet) if not name.startswith("_")}
    assert defined | PASSED | WITHHELD == PORT
    assert len(defined) + len(PASSED) + len(WITHHELD) == len(PORT)


@pytest.mark.parametrize("name", sorted({*WITHHELD, "a_way_that_comes_some_day"}))
async def test_what_was_not_thought_about_is_not_there(seen: RecordStore, name: str) -> None:
    assert not hasattr(seen, name)


async def test_where_nothing_is_hidden_the_store_is_the_store(full: RecordStore) -> None:
    assert without(full, {SHOP, BLOG}, frozenset()) is full


async def test_records_are_found_by_no_way(full: RecordStore, seen: RecordStore) -> None:
    every = Where(kinds=(CONVERSATION, TURN, CODE, SYMBOL))
    shop = Where(kinds=(TURN,), scopes=(SHOP,))
    assert {record.scope for record in await seen.scan(every)} == {BLOG}
    assert await seen.scan(shop) == []
    assert await seen.get(await ids_of(full, TURN, SHOP)) == []
    found = await seen.match(Phrase(("zebra",)), every, Weights(), 10)
    assert {record.scope for record in await full.get([each.id for each in found])} == {BLOG}
    assert await seen.match(Phrase(("zebra",)), shop, Weights(), 10) == []
    contained = await seen.containing("fails", Where(kinds=(TURN,)), 10)
    assert [each.id for each in contained] == (await ids_of(full, TURN, BLOG))[:1]
    assert await seen.containing("fails", shop, 10) == []


async def test_nothing_is_found_by_its_meaning(full: RecordStore, seen: RecordStore) -> None:
    embedder = HashingEmbedder()
    assert {r.scope for r in await seen.unembedded(embedder.name, (TURN,), 10)} == {BLOG}
    await embed(full, embedder)
    [vector] = await embedder.embed(["The zebra fails"])
    also = [*await ids_of(full, CODE, SHOP), *await ids_of(full, CODE, BLOG)]
    found = await seen.near(embedder.name, vector, Where(kinds=(TURN,)), 1, also)
    assert {record.scope for record in await full.get([each.id for each in found])} == {BLOG}
    assert {each.id for each in found} >= set(await ids_of(full, CODE, BLOG))
    shop = Where(kinds=(TURN,), scopes=(SHOP,))
    assert await seen.near(embedder.name, vector, shop, 10) == []


async def test_no_link_leads_to_it(full: RecordStore, seen: RecordStore) -> None:
    hidden, shown = await ids_of(full, CODE, SHOP), await ids_of(full, CODE, BLOG)
    assert len(await full.links([*hidden, *shown])) == 2
    assert [link.source for link in await seen.links([*hidden, *shown])] == shown
    assert await seen.links(hidden) == []


async def test_no_walk_goes_through_it(full: RecordStore, seen: RecordStore) -> None:
    hidden, shown = await ids_of(full, CODE, SHOP), await ids_of(full, CODE, BLOG)
    symbols = [record.id for record in await full.scan(Where(kinds=(SYMBOL,), scopes=(BLOG,)))]
    between = batch(link(shown[0], "is like", hidden[0]), link(hidden[0], "calls", symbols[0]))
    await full.commit(between)
    assert len(await full.walk(shown, Hops(2))) == 2
    assert await seen.walk(shown, Hops(2)) == [await seen.links(shown)]
    assert await seen.walk(hidden, Hops(2)) == []


async def test_folders_and_how_much_is_in_them_are_those_that_are_shown(seen: RecordStore) -> None:
    assert await folders_of(seen) == {BLOG}
    assert {tally.scope for tally in await seen.tally((TURN, CODE))} == {BLOG}
    assert await seen.how_many(Where(kinds=(TURN,))) == 2
    assert await seen.how_many(Where(kinds=(TURN,), scopes=(SHOP,))) == 0


async def test_numbers_over_all_records_are_as_they_are(
    full: RecordStore, seen: RecordStore
) -> None:
    assert await seen.how_many(Where()) == await full.how_many(Where())
    assert await seen.count() == await full.count()
    assert await seen.frequencies(["zebra"]) == await full.frequencies(["zebra"])
    assert await seen.stamp() == await full.stamp()
