"""Random steps and questions for stores, drawn before it is known what is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from everkept.core.records import RecordFilter, Subject
from records import DAY_ONE

# Few of each, so that steps meet.
RECORDS = [f"r{number}" for number in range(12)]
LINKS = [f"l{number}" for number in range(8)]
WORDS = ["red", "Blue", "parser", "parsing", "getUserName", "Größe", "日本語", "C++", "a_b", "50%"]
QUERIES = [
    "red",
    "blue parser",
    "parse OR blue",
    "red NOT blue",
    '"red blue"',
    "par*",
    "user name",
    "日本",
    "groesse OR größe",
    "c++",
]


@dataclass(frozen=True)
class Pick:
    """One of those that are in a certain state when a batch begins, whichever they are."""

    state: Literal["live", "deleted", "unused", "any"]
    which: int

    def among(self, choices: Mapping[str, Sequence[str]]) -> str:
        pool = choices[self.state] or choices["any"]
        return pool[self.which % len(pool)]


@dataclass(frozen=True)
class Draft:
    """A step before it is known which things it is about."""

    make: Literal["record", "link", "update", "delete", "restore"]
    subject: Subject
    first: Pick
    second: Pick | None
    third: Pick
    values: Mapping[str, Any]


def picks(*states: Literal["live", "deleted", "unused", "any"]) -> st.SearchStrategy[Pick]:
    return st.builds(Pick, st.sampled_from(states), st.integers(0, 20))


SCOPES = st.sampled_from(["", "session", "project"])
names = st.sampled_from(["red", "blue", "parser", None, None, None])
texts = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
values = st.fixed_dictionaries(
    {"name": names, "text": texts},
    optional={
        "facets": st.sampled_from([{}, {"n": 1}, {"tags": ["a", "b"]}]),
        "type": st.sampled_from(["red", None]),
        "variant": st.sampled_from(["", "x"]),
        "scope": SCOPES,
        "session": st.sampled_from(["s1", "s1", "s2", None]),
        "position": st.sampled_from([1, 2, 3, None]),
        "author": st.sampled_from(["Ada", "Zoë", "", None]),
        "importance": st.sampled_from([0.0, 0.5, 1.0, None]),
        "occurred_at": st.sampled_from([DAY_ONE - 1, DAY_ONE + 1, None]),
        "tags": st.lists(st.sampled_from("xyz"), max_size=3).map(tuple),
    },
).map(lambda drawn: drawn | {"name_key": drawn["name"]})
subjects = st.sampled_from(["record", "record", "link"])
LIVE = picks("live")
ANY = picks("any")


def drafted(make: str, subject: Any, first: Any, second: Any = ANY) -> st.SearchStrategy[Draft]:
    return st.builds(Draft, st.just(make), subject, first, second, picks("live", "any"), values)


RECORD, LINK = st.just("record"), st.just("link")
NEW_RECORDS = drafted("record", RECORD, picks("unused"), st.none() | LIVE)
NEW_LINKS = drafted("link", LINK, picks("unused"), LIVE)
UPDATES = drafted("update", RECORD, LIVE)
DELETIONS = drafted("delete", subjects, LIVE)
RESTORATIONS = drafted("restore", subjects, picks("deleted"))
# Mostly what fits, and now and then what does not.
DRAFTS = st.one_of(
    NEW_RECORDS,
    NEW_LINKS,
    UPDATES,
    DELETIONS,
    RESTORATIONS,
    drafted("record", RECORD, ANY),
    drafted("link", LINK, ANY),
    drafted("delete", subjects, ANY),
    drafted("restore", subjects, ANY),
)
LATER = st.integers(-1, 2)
TIMES = st.none() | st.integers(DAY_ONE - 1, DAY_ONE + 4)
WHERES = st.builds(
    RecordFilter,
    kinds=st.sampled_from([(), ("note",), ("note", "entity")]),
    ids=st.none() | st.lists(st.sampled_from(RECORDS), max_size=4).map(tuple),
    types=st.sampled_from([(), (), ("red",)]),
    scopes=st.sampled_from([(), ("project",), ("session", "")]),
    sessions=st.sampled_from([None, None, ("s1",), ("s1", "s2")]),
    places=st.sampled_from([None, None, (("s1", 1), ("s2", 2)), ()]),
    visible_to=st.sampled_from([None, "s1", "s3"]),
    tags=st.sampled_from([(), (), ("x",), ("y", "z")]),
    min_importance=st.sampled_from([None, None, 0.0, 0.5]),
    after=TIMES,
    before=TIMES,
    created_before=TIMES,
    touched_after=TIMES,
    deleted=st.sampled_from([False, True, None]),
)
MODELS = st.sampled_from(["one", "two"])
KINDS = ("entity", "note")
TURNS = [
    {"text": text, "session": "s1", "position": position} for position, text in enumerate(("parser", "Größe"), start=1)
]
FAMILY = [
    Draft("record", "record", Pick("any", 0), None, Pick("any", 0), {"name": "red"}),
    Draft("record", "record", Pick("any", 1), None, Pick("any", 0), {"name": "blue"}),
    Draft("record", "record", Pick("any", 2), Pick("any", 0), Pick("any", 0), TURNS[0]),
    Draft("record", "record", Pick("any", 3), Pick("any", 2), Pick("any", 0), TURNS[1]),
    Draft("link", "link", Pick("any", 0), Pick("any", 0), Pick("any", 1), {}),
]
