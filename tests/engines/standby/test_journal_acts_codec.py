from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.records import AMENDABLE, Batch, Delete, Insert, Record, RecordLink, Ref, Restore, Update
from everkept.engines.standby.journal_acts import (
    Act,
    AddToken,
    ArchiveProject,
    AssignWorkspace,
    Commit,
    CreateProject,
    DamagedAct,
    MoveWorkspace,
    RemoveToken,
    RestoreProject,
    SetNote,
    SwitchProject,
    decode_act,
    encode_act,
)
from everkept.values import Value, list_fields
from records import batch, entity

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates and NUL included
NUMBERS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
FACETS = st.dictionaries(ANY_TEXT, JSON, max_size=3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": ANY_TEXT,
    "kind": ANY_TEXT,
    "created_at": NUMBERS,
    "updated_at": NUMBERS,
    "text": ANY_TEXT,
    "name": st.none() | ANY_TEXT,
    "type": st.none() | ANY_TEXT,
    "name_key": st.none() | ANY_TEXT,
    "variant": ANY_TEXT,
    "parent": st.none() | ANY_TEXT,
    "scope": ANY_TEXT,
    "session": st.none() | ANY_TEXT,
    "position": st.none() | NUMBERS,
    "author": st.none() | ANY_TEXT,
    "importance": st.none() | st.floats(allow_nan=False),
    "occurred_at": st.none() | NUMBERS,
    "tags": st.lists(ANY_TEXT, max_size=3).map(tuple),
    "facets": FACETS,
    "deleted_at": st.none() | NUMBERS,
    "version": NUMBERS,
}


def build_values(kind: type[Value], **chosen: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build values of a type by its fields: its constructor shows them only after the first value."""
    return st.builds(kind, **({each.name: st.from_type(each.type) for each in list_fields(kind)} | chosen))


REFS = st.builds(Ref, st.sampled_from(["record", "link"]), ANY_TEXT)
RECORDS = st.builds(Record, **VALUES)
LINKS = build_values(RecordLink, facets=FACETS, deleted_at=st.none() | NUMBERS)
AMENDED = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in sorted(AMENDABLE)})
STEPS = (
    st.builds(Insert, RECORDS | LINKS)
    | st.builds(Update, ANY_TEXT, AMENDED, NUMBERS, st.none() | NUMBERS)
    | st.builds(Delete, REFS)
    | st.builds(Restore, REFS)
)
BATCHES = build_values(Batch, steps=st.lists(STEPS, max_size=4).map(tuple))
ACTS = st.one_of(
    build_values(Commit, batch=BATCHES),
    build_values(CreateProject, project=build_values(Project)),
    build_values(AddToken, token=build_values(Token)),
    *(
        build_values(kind)
        for kind in (
            ArchiveProject,
            RestoreProject,
            SwitchProject,
            AssignWorkspace,
            MoveWorkspace,
            SetNote,
            RemoveToken,
        )
    ),
)


@given(ACTS)
def test_an_act_comes_back_as_it_was(act: Act) -> None:
    assert decode_act(encode_act(act)) == act


@given(RECORDS)
def test_tags_come_back_as_a_tuple(record: Record) -> None:
    act = decode_act(encode_act(Commit("user", batch(Update("a", {"tags": ("x",)}, 1), record))))
    assert isinstance(act, Commit)
    update, insert = act.batch.steps
    assert isinstance(update, Update)
    assert isinstance(insert, Insert)
    assert isinstance(insert.item, Record)
    assert (type(update.values["tags"]), type(insert.item.tags)) == (tuple, tuple)


@given(ACTS)
def test_the_text_is_plain_so_that_its_length_is_its_size(act: Act) -> None:
    assert encode_act(act).isascii()


def test_every_act_and_every_field_of_a_record_is_tried() -> None:
    tried = {each.__name__ for each in get_args(Act)} - {DamagedAct.__name__}  # which is only read
    assert tried == {
        *("Commit", "CreateProject", "ArchiveProject", "RestoreProject"),
        *("SwitchProject", "AssignWorkspace", "MoveWorkspace", "SetNote", "AddToken", "RemoveToken"),
    }
    assert {each.name for each in list_fields(Record)} == VALUES.keys()


def test_what_is_as_in_an_empty_thing_takes_no_room() -> None:
    assert len(encode_act(Commit("user", batch(entity("Ada"))))) < 250
