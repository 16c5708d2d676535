"""Whatever was committed in one engine and copied to another: both answer the same."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.answers import StorePage
from everkept.core.ports import Library, RecordStore, RecordVector
from everkept.core.records import Delete, Insert, Record, RecordFilter, RecordLink, Ref, Restore, Step, Update
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict
from examples import examples
from records import DAY_ONE, batch
from store_copies import ALL, axis, copy_all, everything


@dataclass(frozen=True)
class Wish:
    """Something to be done to whatever is there, picked by numbers."""

    make: Literal["record", "link", "update", "delete", "restore", "purge", "embed", "give out"]
    first: int
    second: int
    values: dict[str, Any]


DOINGS = ["link", "update", "delete", "restore", "purge", "embed", "give out"]
VALUES = st.fixed_dictionaries(
    {"text": st.sampled_from(["", "red", "blue parser", "Größe red"])},
    optional={
        "name": st.sampled_from(["red", "parser", None]),
        "session": st.sampled_from(["s1", None]),
        "position": st.integers(1, 3),
        "tags": st.sampled_from([(), ("x",), ("y", "x")]),
        "facets": st.sampled_from([{}, {"pinned": True}]),
        "scope": st.sampled_from(["", "session"]),
    },
).map(lambda drawn: drawn | {"name_key": drawn.get("name")})
WISHES = st.builds(
    Wish, st.sampled_from(["record", "record", "record", *DOINGS]), st.integers(0, 9), st.integers(0, 9), VALUES
)
SEVERAL = st.lists(WISHES, max_size=12)
WITHOUT_PURGE = st.lists(WISHES.filter(lambda wish: wish.make != "purge"), max_size=12)


async def grant(store: RecordStore, wishes: Sequence[Wish], prefix: str) -> None:
    """One after the other; what does not fit is left undone. New things get ids of their own."""
    for number, wish in enumerate(wishes):
        records, at = await store.scan(RecordFilter(deleted=None)), DAY_ONE + number
        if not records or wish.make == "record":
            parent = records[wish.first % len(records)].id if wish.first % 3 and records else None
            await _try(store, at, Insert(_record(f"{prefix}{number}", parent, wish.values)))
            continue
        await _grant(store, at, wish, records, f"{prefix}{number}")


async def _grant(store: RecordStore, at: int, wish: Wish, records: Sequence[Record], new: str) -> None:
    first, second = (records[which % len(records)] for which in (wish.first, wish.second))
    links = await store.scan_links(deleted=None)
    router: Record | RecordLink = links[0] if links and wish.second > 5 else first
    match wish.make:
        case "link":
            await _try(store, at, Insert(RecordLink(new, first.id, "to", second.id, DAY_ONE)))
        case "update":
            await _try(store, at, Update(first.id, wish.values, first.version))
        case "delete":
            await _try(store, at, Delete(router.ref))
        case "restore":
            await _try(store, at, Restore(router.ref))
        case "purge":
            await store.purge([router.ref])
        case "embed":
            vectors = [RecordVector(first.id, first.version, axis(wish.second))] if first.text else []
            await store.put_vectors("one" if wish.second % 2 else "two", vectors)
        case _:
            await store.note_accesses({first.id: 1}, DAY_ONE + wish.second)


async def _try(store: RecordStore, at: int, step: Step) -> None:
    try:
        await store.commit(batch(step, at=at))
    except Conflict:
        return


def _record(record_id: str, parent: str | None, values: dict[str, Any]) -> Record:
    kind = "entity" if parent is None else "observation"
    return Record(record_id, kind, DAY_ONE, DAY_ONE, parent=parent, **values)


async def shelf(library: Library) -> RecordStore:
    """A store of the library that is still empty."""
    name = f"copy {len(await library.list_projects())}"
    await library.create(name, "")
    return (await library.open(name))[1]


async def bring_up_to_date(source: RecordStore, target: RecordStore, base: int) -> None:
    """What either of them has changed since, as far as their logs say."""
    changes = await source.read_changes(after=base, limit=ALL)
    own = await target.read_changes(after=base, limit=ALL)
    refs = {Ref(e.subject, e.id) for c in (*changes, *own) for e in c.edits if e.id is not None}
    # What something belongs to is touched with it, and no edit says so.
    refs |= {Ref("record", r.parent) for s in (source, target) for r in await _among(s, refs) if r.parent}
    records = await _among(source, refs)
    links = [x for x in await source.scan_links(deleted=None) if x.ref in refs]
    there = {record.ref for record in records} | {link.ref for link in links}
    gone = [ref for ref in refs if ref not in there]
    await target.replicate(StorePage(records, links, gone, changes, log_from=base + 1))


async def _among(store: RecordStore, refs: Set[Ref]) -> list[Record]:
    return [record for record in await store.scan(RecordFilter(deleted=None)) if record.ref in refs]


async def without_use(store: RecordStore) -> dict[str, Any]:
    """All but what is counted and derived, which the log says nothing of."""
    found = await everything(store)
    return {key: found[key] for key in found if "accesse" not in key and "meaning" not in key}


FEW = settings(
    max_examples=examples(15),
    deadline=None,
    # A store of its own is made for each example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FEW
@given(wishes=SEVERAL, page=st.integers(1, 6), back=st.integers(1, 6))
async def test_a_copy_and_a_copy_of_it_answer_as_the_original_does(
    library: Library, wishes: list[Wish], page: int, back: int
) -> None:
    source, middle, end = MemoryStore(), await shelf(library), MemoryStore()
    await grant(source, wishes, "r")
    await copy_all(source, middle, page)
    expected = await everything(source)
    assert await everything(middle) == expected
    await copy_all(middle, end, back)
    assert await everything(end) == expected


@FEW
@given(before=SEVERAL, there=WITHOUT_PURGE, here=WITHOUT_PURGE)
async def test_what_was_done_here_meanwhile_gives_way_to_what_was_done_there(
    library: Library, before: list[Wish], there: list[Wish], here: list[Wish]
) -> None:
    source, replica = MemoryStore(), await shelf(library)
    await grant(source, before, "r")
    await copy_all(source, replica)
    base = await source.get_revision()
    await grant(source, there, "s")
    await grant(replica, here, "t")
    await bring_up_to_date(source, replica, base)
    assert await without_use(replica) == await without_use(source)
    await grant(source, here, "u")
    await grant(replica, here, "u")
    assert await without_use(replica) == await without_use(source)
