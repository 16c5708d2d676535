from collections.abc import Callable
from typing import Any

import pytest

from everkept.core.ports import Order, RecordStore
from everkept.core.records import (
    Batch,
    Change,
    Delete,
    Edit,
    Record,
    RecordFilter,
    RecordLink,
    Restore,
    Step,
    Update,
    Weights,
)
from everkept.errors import Conflict
from everkept.language.words import WordQuery, parse_query
from records import DAY_ONE, MILLISECOND, batch, entity, link, link_ref, note, record_ref

DAY_TWO = DAY_ONE + 86_400_000 * MILLISECOND
EVERYTHING = RecordFilter(deleted=None)


def everything_asked_for(text: str) -> WordQuery:
    query = parse_query(text)
    words = query.expression or query.build_all_query()
    assert words is not None
    return words


async def found(store: RecordStore, text: str, where: RecordFilter | None = None) -> list[str]:
    words = everything_asked_for(text)
    return [m.id for m in await store.match(words, where or RecordFilter(), Weights(), 100)]


async def found_any(store: RecordStore, text: str) -> set[str]:
    words = parse_query(text).build_any_query()
    assert words is not None
    return {m.id for m in await store.match(words, RecordFilter(), Weights(), 100)}


async def containing(store: RecordStore, text: str, where: RecordFilter | None = None) -> list[str]:
    return [match.id for match in await store.match_text(text, where or RecordFilter(), 100)]


async def state(store: RecordStore) -> list[Any]:
    """All that can be read from a store."""
    records = await store.scan(EVERYTHING)
    links = await store.get_links(KNOWN_LINKS, include_deleted=True)
    return [records, links, await store.count_live(), await store.read_changes(), await store.get_revision()]


async def family(store: RecordStore) -> None:
    """Ada with two notes, who knows Grace, who has one."""
    await store.commit(
        batch(
            entity("Ada"),
            entity("Grace"),
            note("Ada", "wrote the first program"),
            note("Ada", "lived in London"),
            note("Grace", "built a compiler"),
            link("Ada", "knows", "Grace"),
            link("Grace", "admires", "Ada"),
        )
    )


KNOWN_LINKS = ["Ada knows Grace", "Grace admires Ada"]


@pytest.mark.smoke
async def test_an_inserted_record_comes_back_as_it_was_given(store: RecordStore) -> None:
    record = Record(
        id="01",
        kind="memory",
        created_at=DAY_ONE + 1,
        updated_at=DAY_ONE + 2,
        text="Straße\n日本語 🎉 \x00 end",
        name="Größe",
        type="unit",
        name_key="größe",
        variant="unit",
        facets={"tags": ["a", "ü"], "deep": {"n": 1.5, "none": None, "true": True}},
    )
    await store.commit(batch(record))
    assert await store.get(["01"]) == [record]


@pytest.mark.smoke
async def test_an_inserted_link_comes_back_as_it_was_given(store: RecordStore) -> None:
    given = link("a", "knows", "b", facets={"since": 1840, "where": ["London"]})
    await store.commit(batch(entity("a"), entity("b"), given))
    assert await store.get_links([given.id]) == [given]


async def test_an_insert_begins_a_life(store: RecordStore) -> None:
    await store.commit(batch(entity("a", version=7, deleted_at=DAY_TWO)))
    assert [(r.version, r.deleted_at) for r in await store.get(["a"])] == [(1, None)]


async def test_what_the_caller_does_to_its_own_facets_later_does_not_reach_the_store(store: RecordStore) -> None:
    facets: dict[str, Any] = {"tags": ["first"]}
    await store.commit(batch(entity("a", facets=facets)))
    facets["tags"].append("second")
    assert [r.facets for r in await store.get(["a"])] == [{"tags": ["first"]}]


@pytest.mark.smoke
async def test_a_commit_answers_with_the_change_that_the_log_has(store: RecordStore) -> None:
    change = await store.commit(Batch(batch(entity("a"), note("a", "n")).steps, DAY_TWO, "create", "client", None))
    assert change == Change(
        1, DAY_TWO, "create", "client", None, (Edit("insert", "record", "a"), Edit("insert", "record", "n"))
    )
    assert await store.read_changes() == [change]


async def test_an_undoing_change_names_what_it_undoes(store: RecordStore) -> None:
    first = await store.commit(batch(entity("a")))
    await store.commit(batch(Delete(record_ref("a")), undoes=first.seq))
    assert [change.undoes for change in await store.read_changes()] == [None, first.seq]


@pytest.mark.smoke
async def test_records_are_found_by_the_beginning_of_their_id(store: RecordStore) -> None:
    names = ["Adam", "Ada", "ada", "Adé", "Ad", "B", "A%", "A_d", "Ada\x01b", "\N{GRINNING FACE}a"]
    entities = [entity(name, name_key=name) for name in names]
    await store.commit(batch(*entities, note("Ada", "Ada wrote")))
    await store.commit(batch(Delete(record_ref("Adam"))))

    async def begin(prefix: str, kinds: tuple[str, ...] = ("entity",), limit: int = 10) -> list[str]:
        return [record.id for record in await store.find_by_prefix(prefix, kinds, limit)]

    assert await begin("Ada") == ["Ada", "Ada\x01b", "Adam"]
    assert await begin("Ada", ("entity", "observation")) == ["Ada", "Ada\x01b", "Ada wrote", "Adam"]
    assert await begin("Ad", limit=2) == ["Ad", "Ada"]
    assert await begin("A%") == ["A%"]
    assert await begin("\N{GRINNING FACE}") == ["\N{GRINNING FACE}a"]
    assert await begin("zebra") == []


async def test_an_empty_batch_leaves_no_trace(store: RecordStore) -> None:
    await family(store)
    before = await state(store)
    assert (await store.commit(batch())).edits == ()
    assert await state(store) == before


@pytest.mark.smoke
async def test_names_are_unique_among_live_siblings(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    with pytest.raises(Conflict):
        await store.commit(batch(entity("ADA", id="other")))


@pytest.mark.parametrize(
    "other",
    [
        entity("Ada", id="other", kind="memory"),
        entity("Ada", id="other", variant="person"),
        entity("Ada", id="other", parent="box"),
        entity("Ada", id="other", name_key=None),
    ],
    ids=["another kind", "another variant", "another parent", "no key"],
)
async def test_one_name_may_stand_twice_when_they_differ_in(store: RecordStore, other: Record) -> None:
    await store.commit(batch(entity("box"), entity("Ada")))
    await store.commit(batch(other))
    assert [r.id for r in await store.get(["Ada", "other"])] == ["Ada", "other"]


async def test_siblings_below_a_parent_have_unique_names_too(store: RecordStore) -> None:
    await store.commit(batch(entity("box"), entity("Ada", parent="box")))
    with pytest.raises(Conflict):
        await store.commit(batch(entity("Ada", id="other", parent="box")))


async def test_records_without_a_name_key_may_all_be_alike(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), note("a", "x", id="1"), note("a", "x", id="2")))
    assert len(await store.scan(RecordFilter(parents=("a",)))) == 2


async def test_the_name_of_a_deleted_record_is_free(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    await store.commit(batch(Delete(record_ref("Ada"))))
    await store.commit(batch(entity("Ada", id="other")))
    assert [r.id for r in await store.scan(RecordFilter())] == ["other"]


@pytest.mark.parametrize(
    "step",
    [
        entity("Ada", name_key="fresh"),
        note("nobody", "an orphan"),
        note("Deleted", "an orphan"),
        link("Ada", "knows", "Grace", id="fresh"),
        link("Ada", "sees", "Grace", id="Ada knows Grace"),
        link("Ada", "knows", "nobody"),
        link("nobody", "knows", "Ada"),
        link("Ada", "knows", "Deleted"),
        link("Deleted", "knows", "Ada"),
        Update("nobody", {"text": "new"}, 1),
        Update("Deleted", {"text": "new"}, 1),
        Update("Ada", {"text": "new"}, 2),
        Update("Ada", {"text": "new"}, 0),
        Update("Ada", {"name_key": "grace"}, 1),
        Delete(record_ref("nobody")),
        Delete(record_ref("Deleted")),
        Delete(link_ref("no link")),
        Delete(link_ref("Deleted owns Ada")),
        Restore(record_ref("nobody")),
        Restore(record_ref("Ada")),
        Restore(record_ref("note of Deleted")),
        Restore(link_ref("no link")),
        Restore(link_ref("Ada knows Grace")),
        Restore(link_ref("Deleted owns Ada")),
    ],
    ids=repr,
)
async def test_a_batch_that_does_not_fit_changes_nothing_at_all(
    store: RecordStore, step: Step | Record | RecordLink
) -> None:
    await family(store)
    await store.commit(batch(entity("Deleted"), note("Deleted", "note of Deleted"), link("Deleted", "owns", "Ada")))
    await store.commit(batch(Delete(record_ref("Deleted"))))
    before = await state(store)
    with pytest.raises(Conflict):
        await store.commit(
            batch(
                entity("Zoe"),
                note("Grace", "renamed"),
                Update("Grace", {"name": "Hopper"}, 1),
                Delete(link_ref("Grace admires Ada")),
                step,
                at=DAY_TWO,
            )
        )
    assert await state(store) == before
    assert await found(store, "Zoe") == []
    assert await found(store, "Hopper") == []
    assert await store.find_faults() == []


async def test_an_update_of_what_may_not_be_amended_is_a_mistake_and_changes_nothing(store: RecordStore) -> None:
    await family(store)
    before = await state(store)
    with pytest.raises(ValueError):
        await store.commit(batch(entity("Zoe"), Update("Ada", {"kind": "memory"}, 1)))
    assert await state(store) == before


@pytest.mark.smoke
async def test_an_update_sets_values_and_counts_the_version(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="old")))
    change = await store.commit(
        batch(Update("Ada", {"text": "new", "facets": {"a": 1}, "type": "thing"}, 1), at=DAY_TWO)
    )
    [record] = await store.get(["Ada"])
    expected = entity("Ada", text="new", facets={"a": 1}, version=2, updated_at=DAY_TWO)
    assert record == expected
    assert change.edits == (Edit("update", "record", "Ada", {"text": "old", "facets": {}}),)


async def test_an_update_that_alters_nothing_leaves_no_change(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="same", facets={"a": [1]})))
    before = await state(store)
    await store.commit(batch(Update("Ada", {"text": "same", "facets": {"a": [1]}}, 1), at=DAY_TWO))
    assert await state(store) == before


async def test_two_updates_of_one_batch_follow_each_other(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", text="one")))
    await store.commit(batch(Update("Ada", {"text": "two"}, 1), Update("Ada", {"text": "three"}, 2)))
    assert [(r.text, r.version) for r in await store.get(["Ada"])] == [("three", 3)]


@pytest.mark.smoke
async def test_deleting_a_record_takes_its_children_and_links_with_it(store: RecordStore) -> None:
    await family(store)
    change = await store.commit(batch(Delete(record_ref("Ada")), at=DAY_TWO))
    assert {(edit.operation, edit.subject, edit.id) for edit in change.edits} == {
        ("delete", "link", "Ada knows Grace"),
        ("delete", "link", "Grace admires Ada"),
        ("delete", "record", "wrote the first program"),
        ("delete", "record", "lived in London"),
        ("delete", "record", "Ada"),
    }
    assert [edit.before for edit in change.edits] == [{"deleted_at": None}] * 5
    assert {r.id for r in await store.scan(RecordFilter())} == {"Grace", "built a compiler"}
    assert await store.find_links(["Grace"]) == []
    assert await store.get(["Ada"]) == []
    [gone] = await store.get(["Ada"], include_deleted=True)
    assert gone.deleted_at == DAY_TWO


async def test_a_deletion_reaches_grandchildren_and_lists_the_deepest_first(store: RecordStore) -> None:
    await store.commit(
        batch(
            entity("top"), entity("middle", parent="top"), entity("low", parent="middle"), entity("other", parent="top")
        )
    )
    change = await store.commit(batch(Delete(record_ref("top"))))
    assert [edit.id for edit in change.edits] == ["low", "middle", "other", "top"]


async def test_what_was_deleted_before_its_parent_is_not_deleted_again(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(record_ref("lived in London"))))
    change = await store.commit(batch(Delete(record_ref("Ada")), at=DAY_TWO))
    assert "lived in London" not in {edit.id for edit in change.edits}
    [kept] = await store.get(["lived in London"], include_deleted=True)
    assert kept.deleted_at == DAY_ONE


async def test_a_link_can_be_deleted_alone(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(link_ref("Ada knows Grace"))))
    assert [x.id for x in await store.find_links(["Ada"])] == ["Grace admires Ada"]
    await store.commit(batch(link("Ada", "knows", "Grace", id="again")))
    assert {x.id for x in await store.find_links(["Ada"])} == {"again", "Grace admires Ada"}


async def test_a_restore_is_for_one_thing_alone(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(record_ref("Ada")), at=DAY_TWO))
    change = await store.commit(batch(Restore(record_ref("Ada"))))
    assert change.edits == (Edit("restore", "record", "Ada", {"deleted_at": DAY_TWO}),)
    assert await store.scan(RecordFilter(parents=("Ada",))) == []
    assert await store.find_links(["Ada"]) == []


@pytest.mark.smoke
async def test_restoring_all_that_a_deletion_took_gives_the_state_before(store: RecordStore) -> None:
    await family(store)
    records, links = await store.scan(RecordFilter()), await store.find_links(["Ada"])
    change = await store.commit(batch(Delete(record_ref("Ada"))))
    back = [
        Restore(record_ref(edit.id) if edit.subject == "record" else link_ref(edit.id))
        for edit in reversed(change.edits)
        if edit.id
    ]
    await store.commit(batch(*back))
    assert await store.scan(RecordFilter()) == records
    assert await store.find_links(["Ada"]) == links
    assert await found(store, "London") == ["lived in London"]


async def test_a_restored_record_finds_its_name_taken(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada")))
    await store.commit(batch(Delete(record_ref("Ada"))))
    await store.commit(batch(entity("Ada", id="other")))
    with pytest.raises(Conflict):
        await store.commit(batch(Restore(record_ref("Ada"))))


async def test_a_restored_link_finds_its_place_taken(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(link_ref("Ada knows Grace"))))
    await store.commit(batch(link("Ada", "knows", "Grace", id="again")))
    with pytest.raises(Conflict):
        await store.commit(batch(Restore(link_ref("Ada knows Grace"))))


@pytest.mark.parametrize(
    "step",
    [note("Ada", "another"), Delete(record_ref("lived in London")), Restore(record_ref("forgotten"))],
    ids=["insert", "delete", "restore"],
)
async def test_a_parent_is_as_new_as_the_last_change_to_its_children(store: RecordStore, step: Step | Record) -> None:
    await family(store)
    await store.commit(batch(note("Ada", "forgotten")))
    await store.commit(batch(Delete(record_ref("forgotten"))))
    change = await store.commit(batch(step, at=DAY_TWO))
    assert [(r.updated_at, r.version) for r in await store.get(["Ada"])] == [(DAY_TWO, 1)]
    assert "Ada" not in {edit.id for edit in change.edits}


async def test_a_parent_is_never_made_older(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada", updated_at=DAY_TWO)))
    await store.commit(batch(note("Ada", "from an old file"), at=DAY_ONE))
    assert [r.updated_at for r in await store.get(["Ada"])] == [DAY_TWO]


async def test_get_answers_in_the_order_asked_for_and_once(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), entity("b"), entity("c")))
    answered = await store.get(["c", "nobody", "a", "c", "b"])
    assert [record.id for record in answered] == ["c", "a", "b"]
    assert await store.get([]) == []


async def test_get_links_answers_in_the_order_asked_for_and_once(store: RecordStore) -> None:
    await family(store)
    asked = ["Grace admires Ada", "no link", "Ada knows Grace", "Grace admires Ada"]
    assert [x.id for x in await store.get_links(asked)] == ["Grace admires Ada", "Ada knows Grace"]
    await store.commit(batch(Delete(link_ref("Ada knows Grace"))))
    assert [x.id for x in await store.get_links(asked)] == ["Grace admires Ada"]
    assert len(await store.get_links(asked, include_deleted=True)) == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (RecordFilter(), ["b", "a", "note"]),
        (RecordFilter(kinds=("entity",)), ["b", "a"]),
        (RecordFilter(kinds=("entity", "observation")), ["b", "a", "note"]),
        (RecordFilter(kinds=("memory",)), []),
        (RecordFilter(ids=("a", "gone", "nobody")), ["a"]),
        (RecordFilter(ids=()), []),
        (RecordFilter(name_keys=("a", "b", "c")), ["b", "a"]),
        (RecordFilter(name_keys=()), []),
        (RecordFilter(parents=("b",)), ["note"]),
        (RecordFilter(parents=("a", "nobody")), []),
        (RecordFilter(parents=()), []),
        (RecordFilter(deleted=True), ["gone"]),
        (RecordFilter(deleted=None), ["b", "a", "note", "gone"]),
        (RecordFilter(kinds=("entity",), deleted=None, ids=("gone", "a")), ["a", "gone"]),
    ],
    ids=repr,
)
async def test_a_scan_gives_what_is_meant_in_the_order_of_arrival(
    store: RecordStore, where: RecordFilter, expected: list[str]
) -> None:
    await store.commit(batch(entity("b"), entity("a"), note("b", "note"), entity("gone")))
    await store.commit(batch(Delete(record_ref("gone"))))
    assert [record.id for record in await store.scan(where)] == expected
    assert [record.id for record in await store.scan(where, limit=1)] == expected[:1]


@pytest.mark.smoke
async def test_a_scan_by_name_pages_through_all_that_have_one(store: RecordStore) -> None:
    names = ["Zoe", "ada", "Ärger", "Bob", "日本", "bob-2", "a"]
    variants = [entity("Bob", id="Bob 2", variant="x")]
    await store.commit(batch(*map(entity, names), *variants, note("a", "nameless")))
    pages: list[list[str]] = []
    after: tuple[str, str] | None = None
    while page := await store.scan(RecordFilter(), order="name", after=after, limit=3):
        pages.append([record.id for record in page])
        after = (page[-1].name_key or "", page[-1].variant)
    assert pages == [["a", "ada", "Bob"], ["Bob 2", "bob-2", "Zoe"], ["Ärger", "日本"]]


@pytest.mark.parametrize("order", ["age", "newest"])
async def test_a_scan_by_age_pages_through_all_that_are_meant(store: RecordStore, order: Order) -> None:
    names = [f"r{number}" for number in range(7)]
    await store.commit(batch(*map(entity, names), entity("Ada"), note("Ada", "not meant")))
    await store.commit(batch(Delete(record_ref("r3"))))
    pages: list[list[str]] = []
    after: str | None = None
    where = RecordFilter(ids=tuple(names), deleted=None)
    while page := await store.scan(where, order=order, after=after, limit=3):
        pages.append([record.id for record in page])
        after = page[-1].id
        await store.commit(batch(entity(f"new since {after}")))
    whole = names if order == "age" else names[::-1]
    assert pages == [whole[:3], whole[3:6], whole[6:]]
    await store.purge([record_ref("r5")])
    assert await store.scan(where, order=order, after="r5") == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("parser", {"p1", "p2"}),
        ("parsers", {"p1", "p2"}),
        ("PARSER grammar", {"p1"}),
        ('"fast parser"', {"p2"}),
        ('"parser fast"', set()),
        ("pars*", {"p1", "p2"}),
        ("gramm* fast*", set()),
        ("grammar OR fast", {"p1", "p2"}),
        ("parser NOT grammar", {"p2"}),
        ("(grammar OR fast) AND parser", {"p1", "p2"}),
        ("kettle", {"tea"}),
        ("get user name", {"code"}),
        ("snake case", {"code"}),
        ("C++", {"code"}),
        ("日本", {"tea"}),
        ("strasse", {"tea"}),
        ("nothing of this", set()),
    ],
)
async def test_words_find_what_is_asked_for(store: RecordStore, query: str, expected: set[str]) -> None:
    await store.commit(
        batch(
            entity("box"),
            note("box", "a parser reads a grammar", id="p1"),
            note("box", "the fast parser", id="p2"),
            note("box", "kettle 日本語 Straße", id="tea"),
            note("box", "getUserName snake_case C++", id="code"),
        )
    )
    assert set(await found(store, query)) == expected


async def test_any_word_is_enough_where_any_is_asked(store: RecordStore) -> None:
    await store.commit(batch(entity("box"), note("box", "one two"), note("box", "three")))
    assert await found_any(store, "two three four") == {"one two", "three"}
    assert await found_any(store, "four") == set()


async def test_words_of_one_query_may_be_in_different_parts_of_a_record(store: RecordStore) -> None:
    await store.commit(batch(entity("Kettle", type="device", text="boils water")))
    assert await found(store, "kettle device water") == ["Kettle"]


async def test_a_name_counts_more_than_a_text(store: RecordStore) -> None:
    await store.commit(
        batch(
            entity("Box", text="a long story about a kettle, among other things"),
            entity("Kettle", text="a long story about a box, among other things"),
            entity("Cup", text="nothing to do with either"),
        )
    )
    assert await found(store, "kettle") == ["Kettle", "Box"]
    assert await found(store, "box") == ["Box", "Kettle"]


async def test_the_better_match_has_the_higher_score_and_names_its_parent(store: RecordStore) -> None:
    await store.commit(batch(entity("Kettle"), entity("Cup"), note("Cup", "like a kettle")))
    matches = await store.match(everything_asked_for("kettle"), RecordFilter(), Weights(), 10)
    assert [(match.id, match.parent) for match in matches] == [("Kettle", None), ("like a kettle", "Cup")]
    assert matches[0].score > matches[1].score > 0
    assert await store.match(everything_asked_for("kettle"), RecordFilter(), Weights(), 1) == matches[:1]


async def test_a_part_that_counts_nothing_still_matches(store: RecordStore) -> None:
    await family(store)
    weights = Weights(name=1.0, text=1.0, context=0.0)
    matches = await store.match(everything_asked_for("grace"), RecordFilter(kinds=("observation",)), weights, 10)
    assert [match.id for match in matches] == ["built a compiler"]


async def test_a_child_is_found_by_the_name_of_its_parent(store: RecordStore) -> None:
    await family(store)
    assert await found(store, "Grace compiler") == ["built a compiler"]
    assert await found(store, "Ada compiler") == []
    assert (await found(store, "Grace"))[0] == "Grace"


async def test_renaming_a_parent_renames_what_its_children_are_found_by(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(record_ref("lived in London"))))
    await store.commit(batch(Update("Ada", {"name": "Lovelace", "name_key": "lovelace"}, 1)))
    await store.commit(batch(Restore(record_ref("lived in London"))))
    assert set(await found(store, "Lovelace")) == {"Ada", "wrote the first program", "lived in London"}
    assert await found(store, "Ada") == []


async def test_a_child_of_a_parent_renamed_in_the_same_batch_has_the_new_name(store: RecordStore) -> None:
    await store.commit(
        batch(entity("Ada"), note("Ada", "before"), Update("Ada", {"name": "Lovelace"}, 1), note("Ada", "after"))
    )
    assert set(await found(store, "Lovelace")) == {"Ada", "before", "after"}
    assert await found(store, "Ada") == []


@pytest.mark.smoke
async def test_words_find_the_text_as_it_is_now(store: RecordStore) -> None:
    await store.commit(batch(entity("a", text="old words")))
    await store.commit(batch(Update("a", {"text": "fresh thoughts"}, 1)))
    assert await found(store, "thought") == ["a"]
    assert await found(store, "old") == []


@pytest.mark.parametrize("deleted", [False, True, None])
async def test_what_is_deleted_is_never_found(store: RecordStore, deleted: bool | None) -> None:
    await family(store)
    await store.commit(batch(Delete(record_ref("Ada"))))
    where = RecordFilter(deleted=deleted)
    assert await found(store, "London", where) == []
    assert await containing(store, "London", where) == []
    assert await found(store, "compiler", where) == ["built a compiler"]
    assert await containing(store, "compiler", where) == ["built a compiler"]


async def test_a_search_keeps_to_what_is_meant(store: RecordStore) -> None:
    await family(store)
    for search in (found, containing):
        assert await search(store, "grace", RecordFilter(kinds=("memory",))) == []
        assert await search(store, "compiler", RecordFilter(parents=("Grace",))) == ["built a compiler"]
        assert await search(store, "compiler", RecordFilter(parents=("Ada",))) == []
        assert await search(store, "compiler", RecordFilter(ids=("Ada",))) == []
        assert await search(store, "grace", RecordFilter(name_keys=("grace",))) == ["Grace"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50%", {"percent"}),
        ("%", {"percent"}),
        ("_", {"score"}),
        ("a_b", {"score"}),
        ("\\", {"path"}),
        ("\\d", {"path"}),
        ("'", {"quote"}),
        ('"', {"quote"}),
        ("ROCKET", {"rocket"}),
        ("ocke", {"rocket"}),
        ("gadget", {"rocket"}),
        ("äRGER üBER", {"umlaut"}),
        ("ärger Ü", {"umlaut"}),
        ("МОСКВ", {"city"}),
        ("москв", {"city"}),
        ("nowhere", set()),
        ("x" * 60_000, set()),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
async def test_a_part_of_a_text_is_found_as_it_is_written_whatever_its_case(
    store: RecordStore, text: str, expected: set[str]
) -> None:
    await store.commit(
        batch(
            entity("b", id="box", type="t"),
            note("box", "50% more", id="percent"),
            note("box", "500 a b aXb", id="none of them"),
            note("box", "a_b", id="score"),
            note("box", "c:\\data", id="path"),
            note("box", 'it\'s "so"', id="quote"),
            entity("Rocket", id="rocket", type="Gadget"),
            note("box", "Ärger Über", id="umlaut"),
            note("box", "Москва", id="city"),
        )
    )
    assert set(await containing(store, text)) == expected


@pytest.mark.smoke
async def test_a_name_that_contains_the_text_comes_first(store: RecordStore) -> None:
    await store.commit(batch(entity("Cup", text="beside the kettle"), entity("Kettle"), note("Cup", "a kettle")))
    matches = await store.match_text("kettle", RecordFilter(), 10)
    assert [match.id for match in matches] == ["Kettle", "Cup", "a kettle"]
    assert [match.parent for match in matches] == [None, None, "Cup"]
    assert matches[0].score > matches[1].score
    assert await store.match_text("kettle", RecordFilter(), 2) == matches[:2]


@pytest.mark.smoke
async def test_links_are_found_from_either_end_oldest_first(store: RecordStore) -> None:
    await store.commit(
        batch(
            *map(entity, "abc"),
            link("a", "to", "b", created_at=DAY_TWO),
            link("b", "to", "c", created_at=DAY_ONE),
            link("c", "to", "a", created_at=DAY_ONE),
            link("a", "to", "a", created_at=DAY_ONE - 1),
        )
    )
    every = ["a to a", "b to c", "c to a", "a to b"]

    async def ids(*asked: str, **more: Any) -> list[str]:
        return [x.id for x in await store.find_links(asked, **more)]

    assert await ids("a") == ["a to a", "c to a", "a to b"]
    assert await ids("a", direction="out") == ["a to a", "a to b"]
    assert await ids("a", direction="in") == ["a to a", "c to a"]
    assert await ids("a", "b", "c") == every
    assert await ids("a", "b", "c", limit=2) == every[:2]
    assert await ids("nobody") == []
    assert await ids() == []


async def test_a_count_is_of_the_living(store: RecordStore) -> None:
    assert await store.count_live() == {"link": 0}
    await family(store)
    assert await store.count_live() == {"entity": 2, "observation": 3, "link": 2}
    await store.commit(batch(Delete(record_ref("Ada"))))
    assert await store.count_live() == {"entity": 1, "observation": 1, "link": 0}


async def test_the_log_is_read_from_either_end(store: RecordStore) -> None:
    for name in "abcde":
        await store.commit(batch(entity(name)))

    async def numbers(**asked: Any) -> list[int]:
        return [change.seq for change in await store.read_changes(**asked)]

    assert await numbers() == [1, 2, 3, 4, 5]
    assert await numbers(after=3) == [4, 5]
    assert await numbers(after=1, limit=2) == [2, 3]
    assert await numbers(limit=2, newest_first=True) == [5, 4]
    assert await numbers(after=4, newest_first=True) == [5]
    assert await numbers(after=5) == []


async def test_the_log_is_read_without_its_largest_changes(store: RecordStore) -> None:
    for names in ("a", "bcd", "ef"):
        await store.commit(batch(*(entity(name) for name in names)))

    async def sizes(**asked: Any) -> list[int]:
        return [len(change.edits) for change in await store.read_changes(**asked)]

    assert await sizes(most_edits=3) == [1, 3, 2]
    assert await sizes(most_edits=2, newest_first=True) == [2, 1]
    assert await sizes(most_edits=0) == []
    assert await sizes(most_edits=2, limit=2) == [1]


@pytest.mark.smoke
async def test_history_is_every_edit_of_one_thing(store: RecordStore) -> None:
    await store.commit(batch(entity("a", text="one"), entity("b"), link("a", "to", "b")))
    await store.commit(batch(Update("a", {"text": "two"}, 1), Update("b", {"text": "x"}, 1)))
    await store.commit(batch(Delete(record_ref("a")), at=DAY_TWO))
    await store.commit(batch(Restore(record_ref("a"))))
    edits = [
        (1, Edit("insert", "record", "a")),
        (2, Edit("update", "record", "a", {"text": "one"})),
        (3, Edit("delete", "record", "a", {"deleted_at": None})),
        (4, Edit("restore", "record", "a", {"deleted_at": DAY_TWO})),
    ]
    assert await store.read_history([record_ref("a")]) == edits
    assert await store.read_history([record_ref("a")], after=2) == edits[2:]
    assert await store.read_history([record_ref("nobody")]) == []
    assert [seq for seq, _ in await store.read_history([link_ref("a to b")])] == [1, 3]


async def test_the_history_of_several_things_is_in_the_order_of_the_log(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), entity("b"), link("a", "to", "b", id="a")))
    await store.commit(batch(Update("b", {"text": "new"}, 1)))
    await store.commit(batch(Delete(record_ref("a"))))
    told = await store.read_history([record_ref("b"), record_ref("a"), link_ref("a")])
    assert [(seq, edit.operation, edit.subject, edit.id) for seq, edit in told] == [
        (1, "insert", "record", "a"),
        (1, "insert", "record", "b"),
        (1, "insert", "link", "a"),
        (2, "update", "record", "b"),
        (3, "delete", "link", "a"),
        (3, "delete", "record", "a"),
    ]
    assert await store.read_history([]) == []


@pytest.mark.smoke
async def test_a_batch_for_one_revision_is_refused_at_another(store: RecordStore) -> None:
    await family(store)
    seen = await store.get_revision()
    await store.commit(batch(note("Ada", "acknowledged")))
    before = await state(store)
    with pytest.raises(Conflict):
        await store.commit(batch(Delete(record_ref("Ada")), revision=seen))
    assert await state(store) == before
    await store.commit(batch(Delete(record_ref("Ada")), revision=await store.get_revision()))
    with pytest.raises(Conflict):
        await store.commit(batch(entity("new"), revision=0))


async def test_a_batch_may_be_for_the_beginning(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), revision=0))
    await store.purge([record_ref("Ada")])
    with pytest.raises(Conflict):
        await store.commit(batch(entity("Ada"), revision=1))


async def test_a_purged_link_leaves_its_ends(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), entity("b"), link("a", "to", "b", id="a")))
    await store.commit(batch(Delete(link_ref("a"))))
    purged = await store.purge([link_ref("a"), link_ref("b")])
    assert (purged.records, purged.links) == (0, 1)
    assert await store.get_links(["a"], include_deleted=True) == []
    assert [record.id for record in await store.scan(RecordFilter())] == ["a", "b"]
    told = [[edit.id for edit in change.edits] for change in await store.read_changes()]
    assert told == [["a", "b"], [], []]


async def test_links_are_found_by_their_verbs_live_or_deleted(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), entity("b"), link("a", "ÄHNELT", "b"), link("b", "knows", "a")))
    await store.commit(batch(Delete(link_ref("a ÄHNELT b"))))

    async def verbs(deleted: bool | None, *text: str) -> list[str]:
        found = await store.scan_links(deleted=deleted, containing="".join(text))
        return [link.verb for link in found]

    assert await verbs(None) == ["ÄHNELT", "knows"]
    assert await verbs(True) == ["ÄHNELT"]
    assert await verbs(False) == ["knows"]
    assert await verbs(None, "ähn") == ["ÄHNELT"]
    assert await verbs(False, "ähn") == []
    assert await verbs(None, "%") == []


@pytest.mark.smoke
async def test_a_purge_removes_a_record_with_all_that_hangs_on_it(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Delete(record_ref("lived in London"))))
    purged = await store.purge([record_ref("Ada"), record_ref("nobody")])
    assert (purged.records, purged.links, purged.complete) == (3, 2, True)
    assert [r.id for r in await store.scan(EVERYTHING)] == ["Grace", "built a compiler"]
    assert await store.get_links(KNOWN_LINKS, include_deleted=True) == []
    assert await found(store, "program") == []
    assert await store.count_live() == {"entity": 1, "observation": 1, "link": 0}
    assert await store.find_faults() == []


async def test_a_purged_thing_is_named_nowhere_in_the_log(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Update("Ada", {"text": "secret"}, 1)))
    await store.purge([record_ref("Ada")])
    left = {edit.id for change in await store.read_changes() for edit in change.edits}
    assert left - {None} == {"Grace", "built a compiler"}
    assert await store.read_history([record_ref("Ada")]) == []
    assert await store.read_history([link_ref("Ada knows Grace")]) == []
    assert [change.tool for change in await store.read_changes()] == ["test", "test", "purge"]


async def test_what_was_purged_can_be_made_anew(store: RecordStore) -> None:
    await family(store)
    await store.purge([record_ref("Ada")])
    await family_of_ada_again(store)
    assert [seq for seq, _ in await store.read_history([record_ref("Ada")])] == [3]
    assert await found(store, "Ada London") == ["lived in London"]
    assert await store.find_faults() == []


async def family_of_ada_again(store: RecordStore) -> None:
    await store.commit(batch(entity("Ada"), note("Ada", "lived in London"), link("Ada", "knows", "Grace")))


async def test_purging_nothing_leaves_no_trace(store: RecordStore) -> None:
    await family(store)
    before = await state(store)
    purged = await store.purge([record_ref("nobody")])
    assert (purged.records, purged.links) == (0, 0)
    assert await state(store) == before


@pytest.mark.parametrize(
    "commit",
    [
        lambda store: store.commit(batch(entity("Zoe"))),
        lambda store: store.commit(batch(Update("Ada", {"text": "x"}, 1))),
        lambda store: store.commit(batch(Delete(record_ref("Ada")))),
        lambda store: store.commit(batch(Delete(link_ref("Ada knows Grace")))),
        lambda store: store.purge([record_ref("Ada")]),
    ],
    ids=["insert", "update", "delete", "delete a link", "purge"],
)
async def test_the_revision_differs_after_a_commit(store: RecordStore, commit: Callable[[RecordStore], Any]) -> None:
    await family(store)
    before = await store.get_revision()
    assert await store.get_revision() == before
    await commit(store)
    assert await store.get_revision() != before


@pytest.mark.smoke
async def test_all_is_well_with_a_store_after_all_kinds_of_steps(store: RecordStore) -> None:
    await family(store)
    await store.commit(batch(Update("Ada", {"name": "Lovelace"}, 1), Delete(record_ref("Grace"))))
    await store.commit(batch(Restore(record_ref("Grace"))))
    await store.purge([record_ref("built a compiler")])
    assert await store.find_faults() == []


async def test_a_record_of_many_facets_and_a_long_text_is_kept_whole(store: RecordStore) -> None:
    text = "long words and many of them " * 20_000
    facets = {f"key {number}": list(range(20)) for number in range(200)}
    record = entity("big", text=text, facets=facets)
    await store.commit(batch(record))
    assert await store.get(["big"]) == [record]


async def test_of_what_is_derived_no_old_value_and_no_deleted_text_is_kept(store: RecordStore) -> None:
    await store.commit(batch(entity("a"), note("a", "secret words", id="n")))
    [kept] = await store.get(["n"])
    changed = Update("n", {"text": "other words"}, kept.version)
    change = await store.commit(Batch((changed,), DAY_TWO, "index", derived=True))
    assert [(edit.operation, edit.before) for edit in change.edits] == [("update", {})]
    assert await found(store, "other") == ["n"]
    await store.commit(Batch((Delete(record_ref("a")),), DAY_TWO, "index", derived=True))
    gone = await store.get(["a", "n"], include_deleted=True)
    assert [(record.name, record.text, dict(record.facets)) for record in gone] == [(None, "", {}), (None, "", {})]
    told = [edit.before for change in await store.read_changes() for edit in change.edits]
    assert "words" not in str(told)
    assert await found(store, "words") == []
