import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.answers import StorePage
from everkept.core.ports import RecordVector
from everkept.core.records import Delete, RecordFilter, Ref, Update, Weights
from everkept.engines.sqlite import purge, search
from everkept.engines.sqlite.connection import create
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.library import AbsentStore
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import Conflict, EverkeptError, ReadOnly
from everkept.language.words import parse_query
from everkept.values import replace
from examples import examples
from processes import said_by
from records import DAY_ONE, batch, entity, link, link_ref, memory, note, record_ref
from store_copies import ALL, axis, copy_all, everything, found, vectors_of

SECRET = "xylophonequartz vermilliongiraffe"
TRACES = (SECRET, "xylophonequartz", "vermilliongiraffe", "ophonequartz", "milliongiraf")
MANY = 300  # records that have a word, for its array to be kept


class Handles:
    """One file in the hands of two who know nothing of each other."""

    def __init__(self, path: Path) -> None:
        create(path, PROJECT)
        self.databases = [Database(path, PROJECT) for _ in range(2)]
        self.mine, self.other = (
            SqliteStore(database, "project", 1, lambda: DAY_ONE, many=0) for database in self.databases
        )
        self.plain = SqliteStore(self.databases[0], "project", 1, lambda: DAY_ONE)

    async def close(self) -> None:
        for database in self.databases:
            await database.close()


@pytest.fixture
async def handles(tmp_path: Path) -> AsyncIterator[Handles]:
    made = Handles(tmp_path / "project.db")
    yield made
    await made.close()


async def scores(store: SqliteStore, text: str, where: RecordFilter | None = None) -> dict[str, float]:
    words = parse_query(text).build_any_query()
    assert words is not None
    matches = await store.match(words, where or RecordFilter(), Weights(), ALL)
    return {match.id: round(match.score, 6) for match in matches}


async def assert_in_step(handles: Handles, *texts: str) -> None:
    for text in texts:
        assert await scores(handles.other, text) == await scores(handles.plain, text)
    assert await handles.other.measure_words(["red", "blue"]) == await handles.plain.measure_words(["red", "blue"])


async def test_arrays_of_others_do_not_outlive_what_they_were_made_of(handles: Handles) -> None:
    await handles.mine.commit(batch(*(memory(f"red number {n}") for n in range(MANY))))
    assert len(await scores(handles.other, "red blue")) == MANY
    old = await handles.mine.get(["red number 7", "red number 8"])
    stocks = [
        StorePage(records=[replace(old[0], text="blue", version=2)]),
        StorePage(records=[memory(f"red blue {n}") for n in range(20)]),
        StorePage(gone=[record_ref("red number 299"), record_ref("red blue 19")]),
        StorePage(records=[memory("blue", id="takes the place of a key")]),
        StorePage(records=[replace(old[1], deleted_at=DAY_ONE)], log_from=1),
    ]
    for stock in stocks:
        revision = await handles.mine.get_revision()
        await handles.mine.replicate(stock)
        assert await handles.mine.get_revision() == (0 if stock.log_from else revision)
        await assert_in_step(handles, "red nothing", "blue nothing")
    await handles.mine.commit(batch(memory("red after all")))
    await assert_in_step(handles, "red nothing")


async def test_filters_of_others_do_not_outlive_what_they_were_made_of(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few of many fit, the keys of those that fit are remembered."""
    monkeypatch.setattr(search, "MAX_TRIED_KEYS", 0)
    rare = RecordFilter(min_importance=0.9)
    told = [memory(f"red {n}", importance=0.1) for n in range(MANY)]
    await handles.mine.commit(batch(*told))
    words = parse_query("red nothing").build_any_query()
    assert words is not None
    assert await handles.other.match(words, rare, Weights(), 5) == []
    raised = [replace(record, importance=1.0, version=2) for record in told[:3]]
    await handles.mine.replicate(StorePage(records=raised))
    matches = await handles.other.match(words, rare, Weights(), 5)
    assert {match.id for match in matches} == {"red 0", "red 1", "red 2"}


async def test_others_see_the_vectors_that_came_and_went(handles: Handles) -> None:
    await handles.mine.commit(batch(memory("a"), memory("b"), memory("c")))
    await handles.mine.put_vectors("one", [RecordVector(i, 1, axis(n)) for n, i in enumerate("abc")])

    async def nearest(number: int) -> list[str]:
        found = await handles.other.find_near("one", axis(number), RecordFilter(), 9)
        return [match.id for match in found if match.score > 0.9]

    assert [await nearest(n) for n in range(4)] == [["a"], ["b"], ["c"], []]
    await handles.mine.replicate(
        StorePage(
            records=[memory("another text", id="a", version=2), memory("new")],
            gone=[record_ref("c")],
            vectors={"one": [RecordVector("new", 1, axis(3)), RecordVector("b", 1, axis(2))]},
        )
    )
    assert [await nearest(n) for n in range(4)] == [[], [], ["b"], ["new"]]


async def test_the_next_change_is_numbered_behind_the_last_that_there_is(handles: Handles) -> None:
    store = handles.mine
    for name in "abcde":
        await store.commit(batch(entity(name)))
    log = await store.read_changes()
    await store.replicate(StorePage(log_from=3))
    assert await store.get_revision() == 2
    assert (await handles.other.commit(batch(entity("f")))).seq == 3
    await store.replicate(StorePage(log_from=3, changes=[replace(log[4], seq=40)]))
    assert (await handles.other.commit(batch(entity("g")))).seq == 41
    await store.replicate(StorePage(log_from=0))
    assert (await handles.other.commit(batch(entity("h")))).seq == 1


async def test_an_edit_of_what_is_not_here_stays_as_one_of_something_purged(handles: Handles) -> None:
    await handles.other.commit(batch(entity("Ada")))
    [change] = await handles.other.read_changes()
    await handles.mine.replicate(StorePage(gone=[record_ref("Ada")], changes=[change]))
    [told] = await handles.mine.read_changes()
    assert [edit.id for edit in told.edits] == [None]
    assert await handles.mine.find_faults() == []


@pytest.mark.parametrize(
    "stock",
    [
        StorePage(records=[entity("kept", id="another")]),
        StorePage(records=[note("nobody", "lost")]),
        StorePage(links=[link("kept", "knows", "nobody")]),
        StorePage(links=[link("kept", "is", "kept", id="another")]),
    ],
    ids=["name", "parent", "end", "link"],
)
async def test_what_does_not_fit_leaves_everything_as_it_was(handles: Handles, stock: StorePage) -> None:
    await handles.mine.commit(batch(entity("kept"), link("kept", "is", "kept")))
    before = await everything(handles.mine), await handles.mine.get_stamp()
    whole = replace(stock, gone=[link_ref("nothing")], log_from=1, accesses={})
    with pytest.raises(Conflict):
        await handles.mine.replicate(whole)
    assert (await everything(handles.mine), await handles.mine.get_stamp()) == before


@pytest.fixture(params=["at once", "in steps"])
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the word index is cleansed: as a small one, and as a large one."""
    if request.param == "in steps":
        monkeypatch.setattr(purge, "MAX_REWRITTEN_ROWS", 0)
        monkeypatch.setattr(purge, "STEP_PAGES", 1)


@pytest.mark.usefixtures("manner")
@pytest.mark.parametrize("how", ["purge", "redact"])
async def test_what_was_removed_elsewhere_is_in_no_byte_of_the_copy(handles: Handles, tmp_path: Path, how: str) -> None:
    original = Handles(tmp_path / "original.db")
    others = [memory(f"number {n}") for n in range(MANY)]
    await original.mine.commit(batch(*others, memory(SECRET, id="secret")))
    await original.mine.commit(batch(Update("secret", {"importance": 0.9, "name": SECRET}, 1)))
    await copy_all(original.mine, handles.mine)
    if how == "purge":
        await original.mine.purge([record_ref("secret")])
        await handles.mine.replicate(StorePage(gone=[record_ref("secret")]))
    else:
        await original.mine.redact([record_ref("secret")], _cleaned)
    await handles.mine.replicate(StorePage(records=await original.mine.get(["secret"])))
    await handles.mine.replicate(StorePage(changes=await original.mine.read_changes()))
    assert said_by("files_with", _set_apart(tmp_path), *TRACES) == []
    assert await everything(handles.mine) == await everything(original.mine)
    await original.close()


def _set_apart(folder: Path) -> Path:
    """The files of the copy, in a folder of their own."""
    apart = folder / "copy"
    apart.mkdir()
    for path in folder.glob("project.db*"):
        shutil.copy(path, apart)
    return apart


def _cleaned(_: Ref, values: Any) -> dict[str, Any]:
    return {name: "clean" if name in ("text", "name") else v for name, v in values.items()}


async def test_a_store_that_cannot_be_made_refuses_a_stock() -> None:
    with pytest.raises(ReadOnly):
        await AbsentStore(ReadOnly("no")).replicate(StorePage(records=[entity("Ada")]))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "below", "update", "delete", "purge", "link", "vector"]),
        st.integers(0, 9),
        st.sampled_from(["red", "red blue", "parser", "Größe", ""]),
        st.sampled_from([None, 1, 2, 3]),
    ),
    max_size=14,
)


async def _do(store: SqliteStore, step: tuple[str, int, str, int | None]) -> None:
    what, number, text, position = step
    name, traits = f"n{number}", {"session": "s", "position": position, "tags": ("x",)}
    [known] = await store.get([name]) or [None]
    steps: dict[str, Any] = {
        "insert": entity(name, text=text, **traits),
        "below": note(f"n{number // 2}", text, id=name, **traits),
        "update": Update(name, {"text": text, "position": position}, known.version if known else 1),
        "delete": Delete(record_ref(name)),
        "link": link(name, "knows", f"n{number // 2}"),
    }
    if what == "purge":
        await store.purge([record_ref(name)])
    elif what == "vector" and known:
        await store.put_vectors("one", [RecordVector(name, known.version, axis(number))])
    elif what in steps:
        await store.commit(batch(steps[what], at=DAY_ONE + number))


async def _try(store: SqliteStore, steps: list[Any]) -> None:
    for step in steps:
        try:
            await _do(store, step)
        except EverkeptError:
            continue


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(there=STEPS, here=STEPS, later=STEPS, page=st.sampled_from([1, 3, ALL]))
async def test_whatever_was_here_it_is_then_as_it_is_there(
    there: list[Any], here: list[Any], later: list[Any], page: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        original, copy = Handles(Path(folder) / "a.db"), Handles(Path(folder) / "b.db")
        await _try(original.mine, there)
        await _try(copy.mine, here)
        await everything(copy.other)  # which has read what was there before
        gone = [record.ref for record in await copy.mine.scan(RecordFilter(deleted=None))]
        await copy.mine.replicate(StorePage(gone=gone, log_from=0))
        await copy_all(original.mine, copy.mine, page)
        assert await everything(copy.other) == await everything(original.plain)
        await _try(original.mine, later)
        records = await original.mine.scan(RecordFilter(deleted=None))
        stay = {record.id for record in records}
        links = await original.mine.scan_links(deleted=None)
        await copy.mine.replicate(
            StorePage(
                records=records,
                links=links,
                gone=[r.ref for r in await copy.mine.scan(RecordFilter(deleted=None)) if r.id not in stay],
                changes=await original.mine.read_changes(limit=ALL),
                vectors=await vectors_of(original.mine, records),
            )
        )
        told, expected = await everything(copy.other), await everything(original.plain)
        ages = {"records", "live", "newest", "links", "children", "tagged"}
        # A record that was purged and came back under its old id keeps its age in the copy.
        assert {k: v for k, v in told.items() if k not in ages} == {k: v for k, v in expected.items() if k not in ages}
        assert sorted(told["records"], key=lambda r: r.id) == sorted(records, key=lambda r: r.id)
        assert await found(copy.other, "red") == await found(original.plain, "red")
        await original.close()
        await copy.close()
