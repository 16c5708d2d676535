from pathlib import Path

import pytest

from everkept.core.records import Delete, Record, RecordFilter, Weights
from everkept.engines.sqlite import purge
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.store import SqliteStore
from everkept.language.words import parse_query
from processes import said_by
from records import batch, note, record_ref

SECRET = "xylophonequartz"
TRACES = (SECRET, "ophonequartz")


@pytest.fixture
async def store(library: SqliteLibrary, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """Has an index of several parts that is too large to be cleansed at once."""
    monkeypatch.setattr(purge, "MAX_REWRITTEN_ROWS", 100)
    monkeypatch.setattr(purge, "STEP_PAGES", 2)
    _, store = await library.open("project")
    for number in range(12):
        await store.commit(batch(*notes(number), note("kept", f"{SECRET} {number}")))
    return store


def notes(batch_number: int) -> list[Record]:
    return [
        note("kept", f"note {number} of {batch_number} has word{number * batch_number} in it") for number in range(60)
    ]


def steps(monkeypatch: pytest.MonkeyPatch, *, most: int | None = None) -> list[int]:
    """Counts the steps, and lets the process die where there are too many."""
    taken: list[int] = []
    step = purge.cleanse_step

    def counted(db: purge.Connection) -> None:
        taken.append(len(taken))
        if most is not None and len(taken) > most:
            raise KeyboardInterrupt
        step(db)

    monkeypatch.setattr(purge, "cleanse_step", counted)
    return taken


async def marks(store: SqliteStore) -> bool:
    return await store.database.read(lambda db: purge.has_marks(db, 1_000_000))


SECRETS = [record_ref(f"{SECRET} {number}") for number in range(12)]


async def test_a_large_index_is_cleansed_in_steps(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = steps(monkeypatch)
    purged = await store.purge(SECRETS)
    assert (purged.records, purged.complete) == (12, True)
    assert len(taken) > 3
    assert not await marks(store)
    assert said_by("files_with", folder, *TRACES) == []
    assert await store.find_faults() == []


async def test_others_store_between_two_steps_and_nothing_gets_lost(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SqliteLibrary(folder)
    _, theirs = await other.open("project")
    writing = store._write
    added: list[str] = []

    async def interleaved(work):  # type: ignore[no-untyped-def]
        text = f"stored meanwhile {len(added)}"
        if len(added) < 20:
            added.append(text)
            await theirs.commit(batch(note("kept", text)))
        return await writing(work)

    monkeypatch.setattr(store, "_write", interleaved)
    assert (await store.purge(SECRETS)).complete
    assert said_by("files_with", folder, *TRACES) == []
    query = parse_query("meanwhile").build_any_query()
    assert query is not None
    found = await store.match(query, RecordFilter(), Weights(), 100)
    assert {match.id for match in found} == set(added)
    assert len(added) >= 3
    assert await store.find_faults() == []
    await other.close()


async def test_the_next_purge_goes_on_where_one_was_cut_short(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        steps(patch, most=1)
        with pytest.raises(KeyboardInterrupt):
            await store.purge(SECRETS)
    assert await marks(store)
    assert said_by("files_with", folder, *TRACES)
    assert await store.get([SECRETS[0].id], include_deleted=True) == []
    again = await store.purge(SECRETS)
    assert (again.records, again.complete) == (0, True)
    assert said_by("files_with", folder, *TRACES) == []


async def test_nothing_is_rewritten_where_nothing_is_marked(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.purge(SECRETS)
    taken = steps(monkeypatch)
    assert (await store.purge([record_ref("nobody")])).complete
    assert taken == []
    await store.commit(batch(Delete(record_ref("note 1 of 1 has word1 in it"))))
    assert await marks(store)
