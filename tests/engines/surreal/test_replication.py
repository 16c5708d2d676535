"""What goes and comes at once: no version of the database makes that of one row by itself."""

from everkept.core.answers import Stock
from everkept.core.ports import Access
from everkept.core.records import Change, Edit, Where
from records import DAY_ONE, batch, entity, link, link_ref, memory, record_ref
from surreal_libraries import Shelf
from surreal_stores import store_over


async def test_a_link_may_have_other_ends(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(*map(entity, "abc"), link("a", "to", "b", id="1")))
    moved = link("b", "from", "c", id="1")
    await store.restock(Stock(links=[moved]))
    assert await store.links(["a"]) == []
    assert await store.links(["b"], direction="out") == [moved]
    assert await store.links(["c"], direction="in") == [moved]
    assert await store.check() == []


async def test_what_is_gone_and_there_again_is_there(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("a"), entity("b"), entity("c"), link("a", "to", "b", id="1")))
    await store.note_accesses({"a": 4}, DAY_ONE)
    change = Change(1, DAY_ONE, "there", "", None, (Edit("insert", "record", "a"),))
    again = Stock(
        records=[entity("a", text="again")],
        links=[link("a", "to", "b", id="1")],
        gone=[record_ref("a"), link_ref("1")],
        changes=[change],
        accesses={"a": Access(1, DAY_ONE)},
    )
    await store.restock(again)
    assert [r.id for r in await store.scan(Where())] == ["b", "c", "a"]
    assert [x.id for x in await store.links(["a"])] == ["1"]
    assert await store.changes() == [change]
    assert await store.accesses(["a"]) == {"a": Access(1, DAY_ONE)}
    assert await store.check() == []


async def test_what_belongs_elsewhere_is_found_there(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("a"), entity("b"), memory("told", parent="a")))
    [told] = await store.get(["told"])
    assert told.parent == "a"
    await store.restock(Stock(records=[memory("told", parent="b", kind="note", version=2)]))
    assert [r.id for r in await store.scan(Where(parents=("b",)))] == ["told"]
    assert [m.parent for m in await store.containing("told", Where(kinds=("note",)), 9)] == ["b"]
    assert await store.check() == []
