import asyncio
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import pytest

from data_folders import off_folders, statement
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.snapshot import (
    HISTORY,
    META,
    USER,
    UnfinishedOperation,
    copy_into,
    copy_to,
    find_faults,
    open_at_rest,
    open_snapshot,
    read_facts,
)
from everkept.errors import StoreDamaged
from processes import acting, said_by

MOMENTS = 300


def path_of(data: Path, part: str = "projects") -> Path:
    [path] = (data / part).glob("*.db")
    return path


def live_wanderers(connection: apsw.Connection) -> int:
    return connection.execute("SELECT count(*) FROM records WHERE id LIKE 'wanderer%' AND deleted_at IS NULL").get


def test_every_database_of_the_folder_is_held(data: Path) -> None:
    with open_snapshot(data) as moment:
        projects = {project.path for project in moment.projects}
        assert {*moment.databases} == {META, USER, HISTORY} | projects
        assert {Path(path).parts[0] for path in projects} == {"projects", "archive"}


def test_a_moment_never_shows_a_thing_in_neither_place_while_it_moves(data: Path) -> None:
    with acting("care_actors:move_back_and_forth", data, "shop") as mover:
        assert mover.hear() == "writing"
        for _ in range(MOMENTS):
            with open_snapshot(data) as moment:
                [shop] = [p.path for p in moment.projects if p.name == "shop"]
                found = [live_wanderers(moment.databases[name]) for name in (shop, USER)]
            assert sum(found) in (1, 2)
        mover.tell("end")
        assert mover.finish()[-1] > 0


def test_what_is_held_does_not_change_and_keeps_nobody_from_writing(data: Path) -> None:
    with open_snapshot(data) as moment:
        before = read_facts(moment.databases[USER])
        statement(data / USER, "UPDATE records SET text = 'written meanwhile'")
        statement(data / USER, "DELETE FROM accesses")
        assert read_facts(moment.databases[USER]) == before
    assert statement(data / USER, "SELECT count(*) FROM accesses") == [(0,)]


def test_a_copy_has_the_same_pages_and_is_for_its_owner_alone(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with open_snapshot(data) as moment:
        copy_to(moment.databases[HISTORY], copy, off_folders)
        expected = read_facts(moment.databases[HISTORY])
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(open_at_rest(copy)) as db:
        assert read_facts(db) == expected
        assert find_faults(db) == []


def test_a_copy_beside_a_writer_comes_to_its_end(data: Path, tmp_path: Path) -> None:
    with acting("care_actors:write_much", data, "shop", "ada") as writer:
        assert writer.hear() == "writing"
        with open_snapshot(data) as moment:
            for number, connection in enumerate(moment.databases.values()):
                copy_to(connection, tmp_path / f"{number}.db", off_folders)
                with closing(open_at_rest(tmp_path / f"{number}.db")) as db:
                    assert read_facts(db) == read_facts(connection)
        writer.tell("end")
        assert writer.finish()[-1] > 0


def test_the_files_in_the_folder_stay_as_they_were_found(data: Path) -> None:
    before = said_by("digests", data)
    with open_snapshot(data):
        pass
    assert said_by("digests", data) == before


def test_a_project_in_the_middle_of_a_move_is_not_held(data: Path) -> None:
    said_by("set_transition", data / META, "shop", "archiving")
    with pytest.raises(UnfinishedOperation), open_snapshot(data):
        pass


def test_a_file_that_is_gone_or_damaged_is_refused_or_listed(data: Path) -> None:
    path_of(data).unlink()
    said_by("spoil", path_of(data, "archive"))
    (data / USER).write_bytes(b"no database at all")
    with pytest.raises(StoreDamaged), open_snapshot(data):
        pass
    with open_snapshot(data, lenient=True) as moment:
        assert {*moment.damaged} >= {USER, f"projects/{path_of_name(moment, 'shop')}"}
        assert HISTORY in moment.databases


def path_of_name(moment: object, name: str) -> str:
    projects = getattr(moment, "projects", [])
    return Path(next(p.path for p in projects if p.name == name)).name


def test_without_a_catalogue_the_files_that_are_there_are_held(data: Path) -> None:
    (data / META).write_bytes(b"no database at all")
    with open_snapshot(data, lenient=True) as moment:
        assert {*moment.damaged} == {META}
        assert len(moment.databases) == 4


def test_a_content_is_put_into_a_file_that_others_have_open(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with open_snapshot(data) as moment:
        copy_to(moment.databases[USER], copy, off_folders)
    with ExitStack() as stack:
        reader = stack.enter_context(closing(apsw.Connection(str(data / USER))))
        writer = stack.enter_context(closing(apsw.Connection(str(data / USER))))
        writer.execute("DELETE FROM accesses")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM accesses").get == 0
        with closing(open_at_rest(copy)) as source:
            copy_into(data / USER, source, off_folders)
        assert reader.execute("SELECT count(*) FROM accesses").get == 0
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM accesses").get == 2
        writer.execute("UPDATE accesses SET count = 9")
        assert reader.execute("SELECT DISTINCT count FROM accesses").get == 9
        assert writer.execute("PRAGMA integrity_check").get == "ok"


def test_a_folder_that_nobody_may_write_to_is_held_too(data: Path) -> None:
    asyncio.run(SqliteLibrary(data).close())
    for path in (data, data / "projects", data / "archive"):
        path.chmod(0o500)
    try:
        with open_snapshot(data) as moment:
            assert len(moment.databases) == 5
    finally:
        for path in (data, data / "projects", data / "archive"):
            path.chmod(0o700)
