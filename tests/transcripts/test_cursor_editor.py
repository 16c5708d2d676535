import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editor_actors import opened, put
from everkept.errors import Unavailable
from everkept.transcripts.cursor_editor import CursorDatabase, OversizedValue
from everkept.transcripts.source_programs import MAX_VALUE_BYTES
from examples import examples
from processes import acting


def seen(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All that can be told of the files in a folder."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def made(path: Path, *, ahead: bool = False, **rows: object) -> CursorDatabase:
    connection = opened(path, ahead=ahead)
    put(connection, rows)
    connection.close()
    return CursorDatabase(path)


@pytest.mark.parametrize("ahead", [False, True])
def test_values_come_in_the_order_of_the_keys(ahead: bool, tmp_path: Path) -> None:
    database = made(tmp_path / "state.vscdb", ahead=ahead, a="1", b=b"\xff2", c=None)
    assert list(database.read_values(["b", "a", "c", "d"])) == [b"\xff2", b"1", None, None]


def test_keys_are_those_with_the_beginning(tmp_path: Path) -> None:
    rows = {"a:1": "x", "a:2": "x", "a;": "x", "b:1": "x", "a": "x"}
    assert made(tmp_path / "state.vscdb", **rows).list_keys("a:") == ["a:1", "a:2"]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_reading_leaves_no_trace(ahead: bool, tmp_path: Path) -> None:
    database = made(tmp_path / "state.vscdb", ahead=ahead, a="1")
    before = seen(tmp_path)
    assert list(before) == ["state.vscdb"]
    assert database.list_keys("a") == ["a"]
    assert list(database.read_values(["a"])) == [b"1"]
    assert seen(tmp_path) == before


def test_what_is_written_meanwhile_is_read_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    with acting("editor_actors:keep_writing", path) as editor:
        for count in (1, 2, 3):
            assert editor.ask() == count
            before = seen(tmp_path)
            assert list(before) == ["state.vscdb", "state.vscdb-shm", "state.vscdb-wal"]
            keys = CursorDatabase(path).list_keys("bubbleId:c1:")
            assert keys == [f"bubbleId:c1:b{place}" for place in range(count)]
            assert seen(tmp_path) == before


def test_what_an_editor_left_that_was_killed_is_read_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    with acting("editor_actors:keep_writing", path) as editor:
        assert editor.ask() == 1
        editor.kill()
    before = seen(tmp_path)
    assert CursorDatabase(path).list_keys("bubbleId:") == ["bubbleId:c1:b0"]
    assert seen(tmp_path) == before


def test_a_database_that_would_have_to_be_mended_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "one" / "state.vscdb"
    path.parent.mkdir()
    with acting("editor_actors:keep_writing", path) as editor:
        assert editor.ask() == 1
        copy = tmp_path / "two"
        copy.mkdir()
        for name in ("state.vscdb", "state.vscdb-wal"):
            shutil.copy(path.with_name(name), copy / name)
    before = seen(copy)
    with pytest.raises(Unavailable):
        CursorDatabase(copy / "state.vscdb").list_keys("bubbleId:")
    assert seen(copy) == before


def test_a_value_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    database = made(tmp_path / "state.vscdb", a=b"x" * MAX_VALUE_BYTES, b=b"x" * (MAX_VALUE_BYTES + 1))
    fits, too_large = database.read_values(["a", "b"])
    assert isinstance(fits, bytes)
    assert isinstance(too_large, OversizedValue)


def test_without_the_table_there_are_no_keys_and_no_values(tmp_path: Path) -> None:
    connection = opened(tmp_path / "state.vscdb")
    connection.execute("DROP TABLE cursorDiskKV")
    connection.close()
    database = CursorDatabase(tmp_path / "state.vscdb")
    assert database.list_keys("a") is None
    assert list(database.read_values(["a"])) == [None]


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    path.write_bytes(b"no database at all, but long enough" * 100)
    with pytest.raises(Unavailable):
        CursorDatabase(path).list_keys("a")


def test_a_file_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        CursorDatabase(tmp_path / "state.vscdb").list_keys("a")


def test_a_change_while_it_is_read_as_fixed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    values = made(path, ahead=True, a="1", b="2").read_values(["a", "b"])
    assert next(values) == b"1"
    os.utime(path, ns=(1, 1))
    with pytest.raises(Unavailable):
        list(values)


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(min_value=0), st.binary(min_size=1, max_size=40))
def test_damage_is_unavailable_or_not_seen(tmp_path_factory: pytest.TempPathFactory, place: int, damage: bytes) -> None:
    folder = tmp_path_factory.mktemp("damage")
    database = made(folder / "state.vscdb", a="1" * 9_000, b="2")
    raw = bytearray((folder / "state.vscdb").read_bytes())
    start = place % len(raw)
    raw[start : start + len(damage)] = damage
    (folder / "state.vscdb").write_bytes(raw)
    with suppress(Unavailable):
        database.list_keys("a")
        list(database.read_values(["a", "b"]))
