"""What goes and comes at once: no version of the database makes that of one row by itself."""

from everkept.core.answers import StorePage
from everkept.core.ports import AccessCount
from everkept.core.records import Change, Edit, RecordFilter
from records import DAY_ONE, batch, entity, link, link_ref, memory, record_ref
from surreal_libraries import Shelf
from surreal_stores import store_over


async def test_a_link_may_have_other_ends(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(*map(entity, "abc"), link("a", "to", "b", id="1")))
    moved = link("b", "from", "c", id="1")
    await store.replicate(StorePage(links=[moved]))
    assert await store.find_links(["a"]) == []
    assert await store.find_links(["b"], direction="out") == [moved]
    assert await store.find_links(["c"], direction="in") == [moved]
    assert await store.find_faults() == []


async def test_what_is_gone_and_there_again_is_there(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("a"), entity("b"), entity("c"), link("a", "to", "b", id="1")))
    await store.note_accesses({"a": 4}, DAY_ONE)
    change = Change(1, DAY_ONE, "there", "", None, (Edit("insert", "record", "a"),))
    again = StorePage(
        records=[entity("a", text="again")],
        links=[link("a", "to", "b", id="1")],
        gone=[record_ref("a"), link_ref("1")],
        changes=[change],
        accesses={"a": AccessCount(1, DAY_ONE)},
    )
    await store.replicate(again)
    assert [r.id for r in await store.scan(RecordFilter())] == ["b", "c", "a"]
    assert [x.id for x in await store.find_links(["a"])] == ["1"]
    assert await store.read_changes() == [change]
    assert await store.get_accesses(["a"]) == {"a": AccessCount(1, DAY_ONE)}
    assert await store.find_faults() == []


async def test_what_belongs_elsewhere_is_found_there(namespace: Shelf) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("a"), entity("b"), memory("told", parent="a")))
    [told] = await store.get(["told"])
    assert told.parent == "a"
    await store.replicate(StorePage(records=[memory("told", parent="b", kind="note", version=2)]))
    assert [r.id for r in await store.scan(RecordFilter(parents=("b",)))] == ["told"]
    assert [m.parent for m in await store.match_text("told", RecordFilter(kinds=("note",)), 9)] == ["b"]
    assert await store.find_faults() == []
