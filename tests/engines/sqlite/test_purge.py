from pathlib import Path

import numpy as np
import pytest

from everkept.core.ports import RecordVector
from everkept.core.records import Delete, RecordFilter, Update
from everkept.engines.sqlite import purge
from everkept.engines.sqlite import store as stores
from everkept.engines.sqlite.library import SqliteLibrary
from processes import acting, said_by
from records import batch, entity, link, link_ref, note, record_ref

SECRET = "xylophonequartz vermilliongiraffe"
# Terms of the index are stems and share prefixes, so parts of the words count as well.
OF_VECTOR = "qZ" * 64  # numbers of half the precision whose bytes can be read
TRACES = (SECRET, "xylophonequartz", "vermilliongiraffe", "ophonequartz", "milliongiraf")


@pytest.fixture(params=["at once", "in steps"], autouse=True)
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the index is cleansed: as a small one, and as a large one."""
    if request.param == "in steps":
        monkeypatch.setattr(purge, "MAX_REWRITTEN_ROWS", 0)
        monkeypatch.setattr(purge, "STEP_PAGES", 1)


@pytest.fixture
async def secretive(library: SqliteLibrary, folder: Path) -> SqliteLibrary:
    """Has the secret in a record, in an older version of one, in the log and in the index."""
    _, store = await library.open("project")
    others = [note("kept", f"note {number} about other things") for number in range(300)]
    await store.commit(batch(*others))
    await store.commit(
        batch(
            entity("secretive", text=SECRET),
            note("secretive", f"and {SECRET} again"),
            link("kept", SECRET, "secretive", facets={"why": SECRET}),
        )
    )
    await store.commit(batch(Update("secretive", {"text": f"{SECRET}!", "name": SECRET}, 1)))
    await store.commit(batch(Update("secretive", {"text": "harmless", "name": "harmless"}, 2)))
    assert said_by("files_with", folder, SECRET)
    return library


async def test_a_purged_text_is_in_no_byte_of_any_file(secretive: SqliteLibrary, folder: Path) -> None:
    _, store = await secretive.open("project")
    purged = await store.purge([record_ref("secretive")])
    assert (purged.records, purged.links, purged.complete) == (2, 1, True)
    assert said_by("files_with", folder, *TRACES) == []
    assert await store.find_faults() == []
    assert len(await store.scan(RecordFilter())) == 301


async def test_a_purge_is_incomplete_while_a_reader_keeps_the_old_pages(
    secretive: SqliteLibrary, folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FOLD_SECONDS", 0.05)
    _, store = await secretive.open("project")
    with acting("hold_snapshot", path) as reader:
        assert reader.hear() == "holding"
        purged = await store.purge([record_ref("secretive")])
        assert (purged.records, purged.complete) == (2, False)
        assert await store.get(["secretive"], include_deleted=True) == []
        assert reader.ask() == "released"
    monkeypatch.undo()
    assert (await store.purge([record_ref("secretive")])).complete
    assert said_by("files_with", folder, *TRACES) == []


async def test_a_purged_text_stays_away_when_the_file_moves(secretive: SqliteLibrary, folder: Path) -> None:
    _, store = await secretive.open("project")
    await store.purge([record_ref("secretive")])
    await secretive.archive("project")
    await secretive.restore("project")
    assert said_by("files_with", folder, *TRACES) == []


async def test_an_overwritten_text_is_not_left_in_the_free_space_of_the_file(
    library: SqliteLibrary, folder: Path
) -> None:
    _, store = await library.open("project")
    await store.commit(batch(entity("long", text=SECRET * 200)))
    await store.purge([record_ref("long")])
    await library.close()
    assert said_by("files_with", folder, *TRACES) == []


async def test_the_verb_of_a_purged_link_is_in_no_byte_of_any_file(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open("project")
    others = [link("kept", f"verb {number}", "kept") for number in range(300)]
    await store.commit(batch(*others, link("kept", SECRET, "kept", id="secretive")))
    await store.commit(batch(Delete(link_ref("secretive"))))
    assert said_by("files_with", folder, SECRET)
    purged = await store.purge([link_ref("secretive")])
    assert (purged.records, purged.links, purged.complete) == (0, 1, True)
    assert said_by("files_with", folder, *TRACES) == []
    assert await store.find_faults() == []


async def test_a_purged_turn_is_in_no_byte_not_even_as_what_others_heard(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open("project")
    around = [note("kept", f"turn {n}", kind="turn", session="s", position=n) for n in (1, 3)]
    said = note(
        "kept",
        SECRET,
        id="said",
        kind="turn",
        session="s",
        position=2,
        author=SECRET,
        tags=(SECRET, "other"),
        scope=SECRET,
    )
    await store.commit(batch(*around, said))
    await store.commit(batch(Update("said", {"tags": ("other", SECRET)}, 1)))
    vector = np.frombuffer(OF_VECTOR.encode(), "<f2").astype(np.float32)
    await store.put_vectors("model", [RecordVector("said", 2, vector)])
    await store.note_accesses({"said": 3}, 1)
    for trace in (SECRET, OF_VECTOR):
        assert said_by("files_with", folder, trace)
    await store.purge([record_ref("said")])
    assert said_by("files_with", folder, *TRACES, OF_VECTOR) == []
    assert [record.id for record in await store.scan(RecordFilter(kinds=("turn",)))] == ["turn 1", "turn 3"]
    assert await store.find_faults() == []
