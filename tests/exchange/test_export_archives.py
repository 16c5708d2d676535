"""Files of an export: which are found, and what is refused."""

import json
import sys
import zipfile
from pathlib import Path

import pytest

from assistant_exports import write_folder, write_zip
from everkept.errors import InvalidInput
from everkept.exchange.export_archives import list_export_files
from everkept.exchange.json_files import MAX_ITEM_VALUES


def test_json_files_in_folders_and_archives_are_found(tmp_path: Path) -> None:
    write_folder(tmp_path, {"b/one.json": [1], "b/picture.json.png": [1]})
    write_zip(tmp_path / "a.ZIP", {"deep/two.JSON": [{"x": 1}], "__MACOSX/deep/two.json": "x", "chat.html": "x"})
    files = list_export_files(tmp_path)
    assert [file.name for file in files] == ["two.JSON", "one.json"]
    assert files[0].place == f"{tmp_path / 'a.ZIP'}!/deep/two.JSON"
    assert list(files[0].read_objects()) == [{"x": 1}]


def test_an_object_is_one_item(tmp_path: Path) -> None:
    write_folder(tmp_path, {"one.json": {"a": 1, "b": {"c": 2}}})
    assert [dict(row) for row in list_export_files(tmp_path)[0].read_objects()] == [{"a": 1, "b": {"c": 2}}]


@pytest.mark.parametrize("damage", [slice(0, 40), slice(0, -30)])
def test_a_broken_archive_is_refused_with_its_name(tmp_path: Path, damage: slice) -> None:
    path = write_zip(tmp_path / "a.zip", {"one.json": [1]})
    path.write_bytes(path.read_bytes()[damage])
    with pytest.raises(InvalidInput) as refused:
        list_export_files(path)
    assert str(path) in refused.value.message


def test_a_damaged_member_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"one.json": [{"text": "word " * 2_000}]})
    raw = bytearray(path.read_bytes())
    raw[60:70] = b"\xff" * 10
    path.write_bytes(raw)
    (file,) = list_export_files(path)
    with pytest.raises(InvalidInput):
        list(file.read_objects())


def test_a_file_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "bomb.zip", {"one.json": "[" + " " * 20_000_000 + "]"})
    with pytest.raises(InvalidInput, match="more than 200 times its size"):
        list_export_files(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_unusual_compression_is_refused(tmp_path: Path, kind: int) -> None:
    """A few bytes can ask for a dictionary of 4 GB."""
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("one.json", "[]")
    with pytest.raises(InvalidInput, match="unusual way"):
        list_export_files(path)


def test_links_in_an_export_are_not_followed(tmp_path: Path) -> None:
    write_folder(tmp_path, {"private.json": [1], "export/one.json": [2]})
    (tmp_path / "export/two.json").symlink_to(tmp_path / "private.json")
    (tmp_path / "export/folder").symlink_to(tmp_path, target_is_directory=True)
    assert [file.name for file in list_export_files(tmp_path / "export")] == ["one.json"]


def test_an_item_of_very_many_values_is_refused(tmp_path: Path) -> None:
    many = MAX_ITEM_VALUES + 1
    (tmp_path / "one.json").write_text("[[" + "[]," * many + "1]]", encoding="utf-8")
    (tmp_path / "two.json").write_text(json.dumps([["a,[{" * many]]), encoding="utf-8")
    one, two = list_export_files(tmp_path)
    with pytest.raises(InvalidInput, match="2,000,000 values"):
        list(one.read_items())
    assert len(list(two.read_items())) == 1


def test_an_archive_of_many_files_takes_steps_in_proportion(tmp_path: Path) -> None:
    few, many = (
        _count_calls(write_zip(tmp_path / f"{n}.zip", {f"{i}.json": [i] for i in range(n)})) for n in (50, 400)
    )
    assert many < 10 * few


def _count_calls(path: Path) -> int:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        for file in list_export_files(path):
            assert len(list(file.read_items())) == 1
    finally:
        sys.setprofile(None)
    return calls
