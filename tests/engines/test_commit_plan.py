"""What a batch makes of what is there: decided before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.records import Batch, Delete, Edit, Insert, Record, RecordLink, Ref, Restore, Step, Update
from everkept.engines.commit_plan import CommitPlan, plan_commit
from everkept.engines.memory.contents import ContentsView
from everkept.errors import Conflict
from everkept.values import replace
from records import DAY_ONE, MILLISECOND, batch, entity, link, link_ref, note, record_ref

LATER = DAY_ONE + MILLISECOND


@dataclass
class Shelf:
    """What plans are made for, and written to."""

    records: dict[str, Record] = field(default_factory=dict[str, Record])
    links: dict[str, RecordLink] = field(default_factory=dict[str, RecordLink])

    async def plan(self, wanted: Batch) -> CommitPlan:
        return await plan_commit(wanted, ContentsView(self.records, self.links))

    async def write(self, *steps: Step | Record | RecordLink, **more: Any) -> CommitPlan:
        planned = await self.plan(batch(*steps, **more))
        self.records |= planned.records
        self.links |= planned.links
        return planned


class Counted(ContentsView):
    """A view that counts what it is asked, and what it gives."""

    def __init__(self, records: Mapping[str, Record], links: Mapping[str, RecordLink]) -> None:
        super().__init__(records, links)
        self.questions = 0

    async def find_record(self, record_id: str) -> Record | None:
        self.questions += 1
        return await super().find_record(record_id)

    async def list_children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        self.questions += 1
        return await super().list_children(record_ids)

    async def list_links(self, record_id: str) -> Sequence[RecordLink]:
        self.questions += 1
        return await super().list_links(record_id)


def told(edits: Sequence[Edit]) -> list[tuple[str, str | None]]:
    return [(edit.operation, edit.id) for edit in edits]


@pytest.fixture
async def family() -> Shelf:
    shelf = Shelf()
    await shelf.write(
        entity("Ada"),
        entity("Bob"),
        note("Ada", "told"),
        note("told", "beneath"),
        note("Ada", "said"),
        link("Ada", "knows", "Bob"),
        link("told", "is of", "Bob"),
        link("Ada", "likes", "Ada"),
    )
    return shelf


async def test_nothing_is_written_by_planning(family: Shelf) -> None:
    before = dict(family.records), dict(family.links)
    await family.plan(batch(Delete(record_ref("Ada")), entity("Eve"), link("Eve", "is", "Bob")))
    with pytest.raises(Conflict):
        await family.plan(batch(Delete(record_ref("Ada")), Update("Ada", {"text": "x"}, 1)))
    assert (family.records, family.links) == before


async def test_what_is_to_be_written_is_said_with_what_was_there(family: Shelf) -> None:
    old = family.records["Ada"]
    planned = await family.plan(batch(Update("Ada", {"text": "x"}, 1), note("Bob", "new"), link("Bob", "is", "new")))
    assert set(planned.records) == {"Ada", "new"}
    assert planned.before == {"Ada": old}
    assert planned.fresh == [Ref("record", "new"), Ref("link", "Bob is new")]
    assert set(planned.links) == {"Bob is new"}
    assert told(planned.edits) == [("update", "Ada"), ("insert", "new"), ("insert", "Bob is new")]


async def test_what_belongs_to_a_record_goes_with_it_the_deepest_first(family: Shelf) -> None:
    planned = await family.plan(batch(Delete(record_ref("Ada"))))
    assert told(planned.edits) == [
        ("delete", "told is of Bob"),
        ("delete", "Ada knows Bob"),
        ("delete", "Ada likes Ada"),
        ("delete", "beneath"),
        ("delete", "told"),
        ("delete", "said"),
        ("delete", "Ada"),
    ]


async def test_a_record_that_is_its_own_ancestor_is_deleted_once(family: Shelf) -> None:
    for child, parent in (("Ada", "beneath"), ("Bob", "Bob")):
        family.records[child] = replace(family.records[child], parent=parent)
    for name, gone in (("Ada", ["beneath", "told", "said", "Ada"]), ("Bob", ["Bob"])):
        planned = await family.plan(batch(Delete(record_ref(name))))
        assert [name for _, name in told(planned.edits) if name in family.records] == gone


async def test_what_the_batch_itself_has_made_goes_too_as_the_youngest(family: Shelf) -> None:
    planned = await family.plan(
        batch(
            note("said", "z"),
            note("told", "a"),
            link("Bob", "heard", "z"),
            link("Bob", "met", "Ada"),
            Delete(link_ref("Ada knows Bob")),
            Delete(record_ref("Ada")),
        )
    )
    assert told(planned.edits)[5:] == [
        ("delete", "Bob heard z"),
        ("delete", "told is of Bob"),
        ("delete", "Ada likes Ada"),
        ("delete", "Bob met Ada"),
        ("delete", "beneath"),
        ("delete", "z"),
        ("delete", "a"),
        ("delete", "told"),
        ("delete", "said"),
        ("delete", "Ada"),
    ]


async def test_a_name_passes_on_within_a_batch(family: Shelf) -> None:
    planned = await family.plan(
        batch(
            Update("Ada", {"name_key": "x"}, 1),
            Update("Bob", {"name_key": "ada"}, 1),
            Update("Ada", {"name_key": "bob"}, 2),
            Delete(record_ref("Bob")),
            entity("new", name_key="ada"),
        )
    )
    assert [planned.records[i].name_key for i in ("Ada", "Bob", "new")] == ["bob", "ada", "ada"]


@pytest.mark.parametrize(
    "steps",
    [
        [entity("x", name_key="ada")],
        [entity("x"), entity("y", name_key="x")],
        [Update("Ada", {"name_key": "bob"}, 1)],
        [Delete(record_ref("Ada")), entity("x", name_key="ada"), Restore(record_ref("Ada"))],
        [Update("Ada", {"text": "touched"}, 1), entity("x", name_key="ada")],
        [link("Ada", "knows", "Bob", id="x")],
        [link("Bob", "is", "Ada"), link("Bob", "is", "Ada", id="x")],
        [Delete(link_ref("Ada knows Bob")), link("Ada", "knows", "Bob", id="x"), Restore(link_ref("Ada knows Bob"))],
        [Update("Ada", {"text": "x"}, 1), Update("Ada", {"text": "y"}, 1)],
        [Delete(record_ref("told")), note("told", "late")],
        [Delete(record_ref("told")), link("told", "is", "Ada")],
        [Delete(record_ref("Ada")), Delete(record_ref("told"))],
        [entity("x"), entity("x", name_key="y")],
        [link("Bob", "is", "Ada", id="x"), link("Bob", "was", "Ada", id="x")],
        [Delete(record_ref("Ada")), Restore(record_ref("told"))],
        [Restore(record_ref("Ada"))],
        [Delete(link_ref("nobody"))],
    ],
)
async def test_what_does_not_fit_is_refused(family: Shelf, steps: list[Any]) -> None:
    with pytest.raises(Conflict):
        await family.plan(batch(*steps))


async def test_what_something_belongs_to_is_touched_whatever_comes_later(family: Shelf) -> None:
    planned = await family.plan(batch(note("Ada", "new"), Update("Ada", {"text": "x"}, 1, DAY_ONE + 1), at=LATER))
    assert planned.records["Ada"].updated_at == LATER
    assert planned.records["Ada"].version == 2
    copied = await family.plan(batch(note("Ada", "new"), at=LATER, copied=True))
    assert set(copied.records) == {"new"}
    assert set((await family.plan(batch(note("Ada", "new"), at=DAY_ONE))).records) == {"new"}


async def test_a_vector_is_outdated_by_other_words_alone(family: Shelf) -> None:
    planned = await family.plan(
        batch(
            Update("Ada", {"name": "Ada L."}, 1),
            Update("told", {"text": "other"}, 1),
            Update("said", {"facets": {"n": 1}, "text": "said"}, 1),
            Delete(record_ref("Bob")),
        )
    )
    assert planned.retold == {"Ada", "told"}


async def test_of_what_can_be_made_again_no_words_stay(family: Shelf) -> None:
    planned = await family.plan(
        batch(
            Update("said", {"text": "other"}, 1),
            Delete(record_ref("told")),
            Delete(link_ref("Ada knows Bob")),
            derived=True,
        )
    )
    assert [edit.before for edit in planned.edits if edit.operation == "update"] == [{}]
    assert [(planned.records[i].text, planned.records[i].facets) for i in ("told", "beneath")] == [("", {}), ("", {})]
    assert planned.retold == {"said", "told", "beneath"}


async def test_what_was_emptied_may_be_told_anew(family: Shelf) -> None:
    planned = await family.plan(
        batch(
            Delete(record_ref("said")), Restore(record_ref("said")), Update("said", {"text": "anew"}, 1), derived=True
        )
    )
    assert (planned.records["said"].text, planned.records["said"].deleted_at) == ("anew", None)


async def test_a_long_chain_goes_as_one() -> None:
    shelf = Shelf()
    names = [f"n{number}" for number in range(3_000)]
    steps = [note(above, name) for above, name in pairwise(names)]
    await shelf.write(entity(names[0]), *steps)
    planned = await shelf.plan(batch(Delete(record_ref(names[0]))))
    assert [edit.id for edit in planned.edits] == names[::-1]


async def test_questions_grow_with_the_steps_and_not_with_their_square() -> None:
    for count in (10, 1_000):
        view = Counted({"top": entity("top")}, {})
        made = [note("top", f"n{number}") for number in range(count)]
        joined = [link("top", "has", record.id) for record in made]
        gone = [Delete(record.ref) for record in made]
        planned = await plan_commit(batch(*made, *joined, *gone), view)
        assert len(planned.edits) == 4 * count
        assert view.questions <= 12 * count


IDS = st.sampled_from(["a", "b", "c", "d", "e"])
NAMES = st.sampled_from([None, "x", "y"])
REFS = st.builds(Ref, st.sampled_from(["record", "link"]), IDS)


def inserted(record_id: str, parent: str | None, name: str | None) -> Insert:
    named: dict[str, Any] = {"parent": parent, "name": name, "name_key": name}
    return Insert(Record(record_id, "note", DAY_ONE, DAY_ONE, text=record_id, **named))


def joined(link_id: str, source: str, target: str) -> Insert:
    return Insert(RecordLink(link_id, source, "to", target, DAY_ONE))


def updated(record_id: str, name: str | None, text: str, version: int) -> Update:
    return Update(record_id, {"name": name, "name_key": name, "text": text}, version)


STEPS = st.one_of(
    st.builds(inserted, IDS, st.none() | IDS, NAMES),
    st.builds(joined, IDS, IDS, IDS),
    st.builds(updated, IDS, NAMES, st.sampled_from(["", "t"]), st.integers(1, 3)),
    st.builds(Delete, REFS),
    st.builds(Restore, REFS),
)


@given(
    st.lists(STEPS, min_size=5, max_size=40),
    st.integers(1, 4),
    st.fixed_dictionaries({"derived": st.booleans(), "copied": st.booleans()}),
)
async def test_steps_of_one_batch_make_what_they_make_one_by_one(
    steps: list[Step], size: int, more: dict[str, bool]
) -> None:
    together, alone = Shelf(), Shelf()
    for start in range(0, len(steps), size):
        some, at = steps[start : start + size], DAY_ONE + start
        kept = Shelf(dict(alone.records), dict(alone.links))
        edits: list[Edit] = []
        try:
            for step in some:
                edits += (await alone.write(step, at=at, **more)).edits
        except Conflict:
            alone = kept
            with pytest.raises(Conflict):
                await together.plan(batch(*some, at=at, **more))
            continue
        planned = await together.write(*some, at=at, **more)
        assert list(planned.edits) == edits
        assert together == alone
        assert list(together.records) == list(alone.records)
        assert planned.before == {i: kept.records[i] for i in planned.records if i in kept.records}
