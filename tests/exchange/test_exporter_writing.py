"""What an export leaves in its folder."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.core.records import Delete, Record, Update
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput, NotFound, ProjectOff
from everkept.exchange.exporter import export_library
from everkept.values import replace
from processes import acting
from records import DAY_ONE, batch, entity, note, record_ref


def unheard(_done: int, _total: int) -> None:
    """Nobody watches."""


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    made = SqliteLibrary(tmp_path / "data", clock=lambda: DAY_ONE)
    await made.create("shop", "")
    _, store = await made.open("shop")
    await store.commit(batch(entity("Ada"), note("Ada", "wrote it")))
    yield made
    await made.close()


async def test_a_change_is_a_change_of_one_line(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    await export_library(library, folder, unheard)
    before = (folder / "projects" / "shop" / "records.jsonl").read_text("utf-8").splitlines()
    _, store = await library.open("shop")
    await store.commit(batch(Update("wrote it", {"text": "wrote all of it"}, 1)))
    await store.commit(batch(entity("Bob")))
    await export_library(library, folder, unheard)
    after = (folder / "projects" / "shop" / "records.jsonl").read_text("utf-8").splitlines()
    assert after[0] == before[0]
    assert len(after) == 3
    assert "wrote all of it" in after[1]


async def test_what_has_not_changed_is_not_written_again(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    await export_library(library, folder, unheard)
    before = {path: path.stat().st_ino for path in folder.rglob("*.jsonl")}
    await export_library(library, folder, unheard)
    assert {path: path.stat().st_ino for path in folder.rglob("*.jsonl")} == before
    assert not list(folder.rglob("*.draft"))


async def test_a_project_that_is_gone_leaves_the_folder(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    await export_library(library, folder, unheard)
    (folder / "mine.md").write_text("mine", encoding="utf-8")
    await library.delete("shop")
    await export_library(library, folder, unheard)
    assert not (folder / "projects").exists()
    assert (folder / "mine.md").exists()


async def test_what_is_forgotten_is_not_written(library: Library, tmp_path: Path) -> None:
    _, store = await library.open("shop")
    await store.commit(batch(Delete(record_ref("wrote it"))))
    await export_library(library, tmp_path / "out", unheard)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or "wrote it" not in path.read_text("utf-8")


async def test_pages_say_the_same_for_people(library: Library, tmp_path: Path) -> None:
    history = await library.open_history_store()
    head = Record("conv_1", "conversation", DAY_ONE, DAY_ONE, name="A talk", facets={"turns": 1})
    said = Record("turn_1", "turn", DAY_ONE, DAY_ONE, text="Hello", parent="conv_1", author="user")
    await history.commit(batch(head, said, derived=True))
    await export_library(library, tmp_path / "out", unheard)
    graph = (tmp_path / "out" / "projects" / "shop" / "graph.md").read_text("utf-8")
    assert "## Ada (thing)" in graph
    assert "- wrote it" in graph
    [page] = (tmp_path / "out" / "history" / "conversations").rglob("*.md")
    assert "> Hello" in page.read_text("utf-8")


async def test_one_project_can_be_written_alone(library: Library, tmp_path: Path) -> None:
    await library.create("other", "")
    await export_library(library, tmp_path / "out", unheard, project="shop")
    assert [each.name for each in (tmp_path / "out" / "projects").iterdir()] == ["shop"]
    assert not (tmp_path / "out" / "user").exists()
    with pytest.raises(NotFound):
        await export_library(library, tmp_path / "none", unheard, project="none")
    assert not (tmp_path / "none").exists()


async def test_an_archived_project_is_named(library: Library, tmp_path: Path) -> None:
    await library.archive("shop")
    outcome = await export_library(library, tmp_path / "out", unheard)
    assert outcome.archived == ["shop"]


async def test_a_folder_that_cannot_be_written_is_an_error(library: Library, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InvalidInput, match="cannot be written"):
        await export_library(library, tmp_path / "file" / "out", unheard)


async def test_an_export_that_is_killed_can_be_done_again(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with acting("exchange_actors:export_and_die", tmp_path / "data", folder) as actor:
        assert actor.hear() is None
    left = list(folder.rglob("*.draft"))
    assert left
    await export_library(library, folder, unheard)
    assert (folder / "projects" / "shop" / "records.jsonl").exists()
    for draft in folder.rglob("*.draft"):
        os.utime(draft, (1, 1))
    await export_library(library, folder, unheard)
    assert not list(folder.rglob("*.draft"))


async def test_only_its_owner_may_read_an_export(library: Library, tmp_path: Path) -> None:
    await export_library(library, tmp_path / "out", unheard)
    others = [path for path in (tmp_path / "out").rglob("*") if path.stat().st_mode & 0o077]
    assert others == [] or os.name == "nt"


async def test_what_is_switched_off_is_not_written(library: Library, tmp_path: Path) -> None:
    await library.link_workspace("/home/dev/shop", await library.get_project("shop"))
    head = Record("conv_1", "conversation", DAY_ONE, DAY_ONE, name="T", scope="/home/dev/shop")
    said = replace(head, id="turn_1", kind="turn", text="hidden words", parent="conv_1", name=None)
    await (await library.open_history_store()).commit(batch(head, said, derived=True))
    await library.set_off("shop", off=True)
    outcome = await export_library(library, tmp_path / "out", unheard)
    assert (outcome.off, outcome.records) == (["shop"], 0)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or "hidden words" not in path.read_text("utf-8")
    with pytest.raises(ProjectOff):
        await export_library(library, tmp_path / "one", unheard, project="shop")


async def test_one_project_is_brought_up_to_date_in_the_export_of_all(library: Library, tmp_path: Path) -> None:
    await library.create("other", "")
    folder = tmp_path / "out"
    await export_library(library, folder, unheard)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    _, store = await library.open("shop")
    await store.commit(batch(entity("Bob")))
    await export_library(library, folder, unheard, project="shop")
    assert {path.relative_to(folder) for path in folder.rglob("*")} == before
    assert "Bob" in (folder / "projects" / "shop" / "records.jsonl").read_text("utf-8")
    await library.delete("other")
    await export_library(library, folder, unheard)
    assert not (folder / "projects" / "other").exists()
