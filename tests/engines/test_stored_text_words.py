"""Whom a change reaches: held against working out everything anew."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everkept.core.records import Record
from everkept.core.runtime import run_without_loop
from everkept.engines.stored_text import AgedRecord, IndexEntry, RecordShift, SessionPlace, find_index_changes
from records import DAY_ONE, entity, memory, note

TEXTS = st.sampled_from(["red", "blue"])
PARENTS = ("Ada", "Bob")
SAID = tuple(f"r{number}" for number in range(7))
AGES = {record_id: age for age, record_id in enumerate((*PARENTS, *SAID))}


def said(record_id: str, text: str = "red", **more: Any) -> Record:
    return memory(text, id=record_id, **more)


def states(record_id: str) -> st.SearchStrategy[Record | None]:
    """What may be there under an id; close together, so that most hear others."""
    return st.none() | st.builds(
        said,
        st.just(record_id),
        TEXTS,
        parent=st.none() | st.sampled_from(PARENTS),
        session=st.sampled_from(["s", "s", "s", "t", None]),
        position=st.integers(0, 4),
        scope=st.sampled_from(["project", "project", "session"]),
        deleted_at=st.sampled_from([None, None, None, DAY_ONE]),
    )


RECORDS = st.fixed_dictionaries({record_id: states(record_id) for record_id in SAID})
CHANGES = st.lists(st.sampled_from(SAID).flatmap(lambda i: st.tuples(st.just(i), states(i))), max_size=2).map(dict)
NAMES = st.tuples(*(st.sampled_from(["one", "two"]) for _ in PARENTS))


def parents(names: Iterable[str]) -> dict[str, Record]:
    return {i: entity(name, id=i) for i, name in zip(PARENTS, names, strict=True)}


def there(records: dict[str, Record | None]) -> dict[str, Record]:
    return {i: record for i, record in records.items() if record is not None}


@dataclass
class World:
    """What is stored, and what was asked of it."""

    stored: dict[str, Record]
    asked: list[str] = field(default_factory=list[str])

    async def list_children(self, record_ids: Sequence[str]) -> list[AgedRecord]:
        self.asked.append("children")
        return self._live(lambda r: r.parent in record_ids)

    async def list_at_places(self, places: Sequence[SessionPlace]) -> list[AgedRecord]:
        self.asked.append("places")
        return self._live(lambda r: (r.session, r.position) in places)

    async def list_records(self, record_ids: Sequence[str]) -> list[AgedRecord]:
        self.asked.append("records")
        return [(AGES[i], self.stored[i]) for i in record_ids if i in self.stored]

    def _live(self, is_meant: Callable[[Record], bool]) -> list[AgedRecord]:
        live = [r for r in self.stored.values() if r.deleted_at is None]
        return [(AGES[r.id], r) for r in live if is_meant(r)]


def all_words(stored: dict[str, Record]) -> dict[str, Any]:
    """Of each live record, the long way."""
    live = [stored[i] for i in AGES if i in stored and stored[i].deleted_at is None]
    names = {i: record.name or "" for i, record in stored.items()}
    return {r.id: (r.text, r.name, [names.get(r.parent or "", ""), *_around(r, live)]) for r in live}


def _around(record: Record, live: Sequence[Record]) -> list[str]:
    if record.session is None or record.position is None:
        return []
    return [
        other.text
        for other in live
        if other.session == record.session and other.position is not None
        if abs(other.position - record.position) == 1 and other.kind == record.kind
        if other.scope != "session" or record.scope == "session"
    ]


@given(RECORDS, CHANGES, NAMES, NAMES)
def test_what_is_reached_is_all_that_is_found_by_other_words(
    before: dict[str, Record | None],
    changes: dict[str, Record | None],
    names: tuple[str, ...],
    new_names: tuple[str, ...],
) -> None:
    old = parents(names) | there(before)
    new = parents(new_names) | there(before | changes)
    changed = [i for i in AGES if old.get(i) != new.get(i)]
    shift = RecordShift(
        {i: old[i] for i in changed if i in old},
        {i: new[i] for i in changed if i in new},
        {i: AGES[i] for i in changed},
    )
    found, lost = run_without_loop(find_index_changes(shift, World(old)))
    words = all_words(old) | {r.id: (r.text, r.name, context) for r, context in found}
    assert {i: w for i, w in words.items() if i not in lost} == all_words(new)


def test_a_change_that_nobody_is_found_by_asks_for_nothing() -> None:
    world = World({"r0": said("r0", session="s", position=1)})
    new = said("r0", session="s", position=1, importance=1.0)
    assert run_without_loop(find_index_changes(RecordShift(world.stored, {"r0": new}, {"r0": 0}), world)) == ([], [])
    assert world.asked == []


def test_who_has_no_place_and_no_parent_is_reached_without_a_question() -> None:
    world = World({"r0": said("r0")})
    new = said("r0", "blue")
    found = run_without_loop(find_index_changes(RecordShift(world.stored, {"r0": new}, {"r0": 0}), world)).found
    assert found == [IndexEntry(new, [""])]
    assert world.asked == []


def test_a_parent_that_was_not_read_is() -> None:
    world = World({"Ada": entity("Ada")})
    new = note("Ada", "said", id="r0")
    [worded] = run_without_loop(find_index_changes(RecordShift({}, {"r0": new}, {"r0": 1}), world)).found
    assert worded.context == ["Ada"]
    assert world.asked == ["records"]
