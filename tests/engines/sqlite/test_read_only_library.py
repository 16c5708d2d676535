import asyncio
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from everkept.core.ports import ReadingRoom
from everkept.core.records import Weights, Where
from everkept.core.runtime import driven
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadingRoom, reading_room
from everkept.engines.sqlite.store import MANY
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    ProjectArchived,
    ReadOnly,
    StoreDamaged,
    StoreTooNew,
)
from everkept.language.words import AnyOf, Phrase
from processes import said_by
from records import batch, entity, memory

PROJECT_NAME = "project"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The folder of a library with one project, which nobody has open."""

    async def made() -> None:
        library = SqliteLibrary(tmp_path / "closed")
        await library.create(PROJECT_NAME, "")
        _, store = await library.open(PROJECT_NAME)
        await store.commit(batch(entity("kept", text="a text to keep")))
        await library.close()

    asyncio.run(made())
    return tmp_path / "closed"


@pytest.fixture
def room(closed: Path) -> SqliteReadingRoom:
    return SqliteReadingRoom(closed)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_where_nothing_was_stored_there_is_no_room(tmp_path: Path) -> None:
    assert reading_room(tmp_path / "data") is None
    (tmp_path / "data").mkdir()
    assert reading_room(tmp_path / "data") is None
    assert files(tmp_path) == ["data"]


def test_it_answers_without_an_event_loop_and_makes_nothing(
    room: ReadingRoom, closed: Path
) -> None:
    before = files(closed)
    project, store = driven(room.open(PROJECT_NAME))
    assert project == driven(room.project(PROJECT_NAME))
    assert [record.id for record in driven(store.scan(Where()))] == ["kept"]
    assert driven(room.project_of_workspace("/nowhere")) is None
    assert driven(room.user()) is None
    assert driven(room.history()) is None
    driven(room.close())
    assert files(closed) == before


async def test_what_belongs_to_no_project_is_there_once_it_was_made(
    library: SqliteLibrary, folder: Path
) -> None:
    user, history = await library.user(), await library.history()
    await user.commit(batch(memory("about the user")))
    await history.commit(batch(memory("about the past")))
    room = SqliteReadingRoom(folder)
    for store, text in (
        (await room.user(), "about the user"),
        (await room.history(), "about the past"),
    ):
        assert store is not None
        assert [record.text for record in await store.scan(Where())] == [text]
    await room.close()


def test_after_its_end_the_next_question_opens_it_again(room: ReadingRoom) -> None:
    _, store = driven(room.open(PROJECT_NAME))
    driven(room.close())
    assert driven(store.how_many(Where())) == 1
    assert driven(room.open(PROJECT_NAME))[1] is store
    driven(room.close())


@pytest.mark.parametrize("name", ["nowhere", "", "a\0b", "\ud800"])
def test_an_unknown_project_is_not_found(room: ReadingRoom, name: str) -> None:
    with pytest.raises(NotFound):
        driven(room.project(name))


async def test_an_archived_project_is_refused(library: SqliteLibrary, folder: Path) -> None:
    await library.archive(PROJECT_NAME)
    await library.close()
    room = SqliteReadingRoom(folder)
    assert (await room.project(PROJECT_NAME)).status == "archived"
    with pytest.raises(ProjectArchived):
        await room.open(PROJECT_NAME)


def pragma(path: Path, name: str, value: int) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma(name, value)
    connection.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda path: pragma(path, "user_version", 99), StoreTooNew),
        (lambda path: pragma(path, "user_version", 1), ReadOnly),
        (lambda path: pragma(path, "application_id", 7), StoreDamaged),
        (lambda path: path.write_bytes(b"no database " * 1_000), StoreDamaged),
        (lambda path: path.write_bytes(b""), StoreDamaged),
        (lambda path: path.unlink(), Conflict),
    ],
    ids=["newer", "older", "other", "rubbish", "empty", "missing"],
)
@pytest.mark.parametrize("which", ["_meta.db", "projects/*.db"])
def test_a_file_that_is_not_as_it_should_be_is_told_and_left_alone(
    room: ReadingRoom, closed: Path, which: str, change: Any, error: type[EverkeptError]
) -> None:
    [path] = closed.glob(which)
    change(path)
    before = {
        each: (closed / each).read_bytes() for each in files(closed) if (closed / each).is_file()
    }
    with pytest.raises(error):
        driven(driven(room.open(PROJECT_NAME))[1].count())
    driven(room.close())
    assert {each: (closed / each).read_bytes() for each in before} == before
    assert set(files(closed)) == {*before, "archive", "projects"}


def test_a_log_that_a_crash_has_left_is_read_too(closed: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    shutil.copytree(closed, crashed)
    said_by("hook_actors:write_and_crash", crashed, PROJECT_NAME, "written last")
    assert list(crashed.glob("projects/*-wal"))
    room = SqliteReadingRoom(crashed)
    _, store = driven(room.open(PROJECT_NAME))
    assert {record.id for record in driven(store.scan(Where()))} == {"kept", "written last"}
    driven(room.close())


def test_many_records_are_searched_by_words_without_numpy(closed: Path) -> None:
    said = said_by("hook_actors:search_many", closed, PROJECT_NAME, MANY + 1)
    assert said["found"] == ["m 17"]
    assert said["frequency"] == pytest.approx(1 / (MANY + 2))
    assert said["loaded"] == []


async def test_it_gives_what_the_library_gives(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open(PROJECT_NAME)
    await store.commit(
        batch(*(memory(f"the {word} of words", tags=("a",)) for word in ["one", "two", "three"]))
    )
    await store.commit(batch(entity("Ada", text="words of one")))
    room = SqliteReadingRoom(folder)
    project, inline = await room.open(PROJECT_NAME)
    assert project == await library.project(PROJECT_NAME)
    words, weights = AnyOf((Phrase(("words",)), Phrase(("one",)))), Weights()
    for question in (
        lambda s: s.scan(Where(), order="newest", limit=2),
        lambda s: s.match(words, Where(), weights, 10),
        lambda s: s.containing("wo", Where(tags=("a",)), 10),
        lambda s: s.frequencies(["one", "words", "none"]),
        lambda s: s.tally(["memory", "entity"]),
        lambda s: s.changes(),
        lambda s: s.stamp(),
        lambda s: s.accesses(["kept"]),
        lambda s: s.check(),
    ):
        assert await question(inline) == await question(store)
    await room.close()
