from itertools import count

import pytest

from everkept.app.app import App
from everkept.app.change_log import ChangeLog
from everkept.core.records import Delete, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.settings import read_settings
from records import DAY_ONE, batch, entity, link, note, record_ref
from tool_calls import Client


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


@pytest.fixture
def changes(library: MemoryLibrary) -> ChangeLog:
    ticks = count(DAY_ONE + 1_000)
    return ChangeLog(library, lambda: next(ticks))


@pytest.fixture
async def shop(library: MemoryLibrary) -> MemoryStore:
    await library.create("shop", "")
    return (await library.open("shop"))[1]


async def read_summaries(changes: ChangeLog) -> list[str]:
    return [entry.summary for entry in reversed(await changes.list_entries("shop", 10))]


async def test_the_log_says_in_words_what_a_change_did(changes: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("Ada"), entity("Grace"), note("Ada", "x"), note("Ada", "y")))
    await shop.commit(batch(Update("Ada", {"type": "new"}, 1)))
    await shop.commit(batch(Update("Ada", {"name": "Ada L.", "name_key": "ada l."}, 2)))
    await shop.commit(batch(link("Ada", "knows", "Grace")))
    await shop.commit(batch(Delete(record_ref("Grace")), entity("Zoe")))
    assert await read_summaries(changes) == [
        "Added 2 entities (Ada L., Grace) and 2 observations",
        "Changed type of entity Ada L.",
        "Renamed entity Ada to Ada L.",
        "Added relation Ada L. knows Grace",
        "Deleted entity Grace and relation Ada L. knows Grace; added entity Zoe",
    ]


async def test_an_undo_says_in_words_what_it_did(changes: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("Orders DB"), entity("Shop"), entity("Cart")))
    await shop.commit(batch(link("Shop", "uses", "Orders DB"), link("Cart", "uses", "Orders DB")))
    await shop.commit(batch(Delete(record_ref("Orders DB"))))
    undone = await changes.undo(None, "shop", "test")
    assert undone.effect == "Restored entity Orders DB and 2 relations"
    assert (await read_summaries(changes))[-1] == undone.effect


async def test_a_summary_shortens_texts_and_counts_many(changes: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("Bob")))
    await shop.commit(batch(note("Bob", "is tall")))
    await shop.commit(batch(note("Bob", "and talks " * 20)))
    await shop.commit(batch(*(note("Bob", str(number)) for number in range(30))))
    _, short, long, many = await read_summaries(changes)
    assert short == 'Added observation "is tall" on Bob'
    assert long.startswith('Added observation "and talks and')
    assert long.endswith('…" on Bob')
    assert len(long) < 100
    assert many == 'Added 30 observations on Bob ("0", "1", "2", …)'


async def test_a_summary_of_a_purged_change_names_nothing(changes: ChangeLog, shop: MemoryStore) -> None:
    await shop.commit(batch(entity("secret")))
    await shop.purge([record_ref("secret")])
    assert "secret" not in str(await read_summaries(changes))


@pytest.mark.parametrize(
    ("change", "did", "undid"),
    [
        ({"pinned": True}, "Pinned: Deploy at noon", "Unpinned: Deploy at noon"),
        ({"importance": 0.9}, 'Changed importance of memory "Deploy at noon"', None),
        (
            {"content": "Deploy at two"},
            'Edited memory "Deploy at two"',
            'Restored the earlier text of memory "Deploy at noon"',
        ),
        (None, 'Forgot memory "Deploy at noon"', 'Restored memory "Deploy at noon"'),
    ],
)
async def test_changes_of_a_memory_read_like_the_tool_that_made_them(
    library: MemoryLibrary, change: dict[str, object] | None, did: str, undid: str | None
) -> None:
    app = App(read_settings({"project": "shop"}, {}), library=library)
    client = Client(app)
    memory_id = (await client("store_memory", content="Deploy at noon"))["memory_id"]
    if change is None:
        await client("forget_memory", memory_id=memory_id)
    else:
        await client("update_memory", memory_id=memory_id, **change)
    newest = (await app.change_log.list_entries("shop", 1))[0]
    assert newest.summary == did
    # The summary shows the text that the change wrote, also after a later one.
    await client("store_memory", content="Another")
    undone = await app.change_log.undo(newest.reference, None, "test")
    assert undone.effect == (undid or 'Restored the earlier importance of memory "Deploy at noon"')
    assert {e.reference: e.summary for e in await app.change_log.list_entries("shop", 9)}[newest.reference] == did
    await app.close()


async def test_the_end_of_a_session_summarizes_it(library: MemoryLibrary) -> None:
    app = App(read_settings({"project": "shop"}, {}), library=library)
    client = Client(app)
    await client("store_memory", content="Deploy at noon", scope="session", session_id="one")
    await app.end_sessions()
    newest = (await app.change_log.list_entries("shop", 1))[0]
    assert newest.summary.startswith('Summarized session "1 memory')
    await app.close()
