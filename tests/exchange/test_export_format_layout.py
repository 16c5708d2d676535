"""The names and the list of files of an export."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.exchange.export_format import (
    MANIFEST_FILE,
    ExportManifest,
    assign_folder_names,
    build_file_name,
    check_target,
    read_manifest,
    remove_old,
)


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)))
def test_each_name_has_a_folder_of_its_own_that_any_file_system_takes(names: set[str]) -> None:
    folders = assign_folder_names(names)
    assert len({folder.casefold() for folder in folders.values()}) == len(names)
    for folder in folders.values():
        assert not set(folder) & set('<>:"/\\|?*\0')
        assert not folder.startswith(".")
        assert not folder.endswith((".", " "))


def test_an_ordinary_name_is_its_own_folder() -> None:
    assert build_file_name("shop api") == "shop api"
    assert build_file_name("a/b") == "a%2Fb"
    assert build_file_name("CON") == "%43ON"


def test_a_folder_with_other_things_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "thesis.md").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match="not empty"):
        check_target(tmp_path)
    with pytest.raises(InvalidInput, match="is a file"):
        check_target(tmp_path / "thesis.md")


def test_a_fresh_repository_may_be_written_into(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert check_target(tmp_path) == ExportManifest(())
    assert check_target(tmp_path / "new") == ExportManifest(())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "cannot be read"),
        ("[]", "not the file list"),
        ('{"what": "everkept export", "format": 99, "files": []}', "Update Everkept"),
        ('{"what": "everkept export", "format": 1, "files": 7}', "does not list"),
    ],
)
def test_a_list_that_is_not_ours_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / MANIFEST_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=problem):
        read_manifest(tmp_path)


def test_only_what_the_last_export_wrote_is_taken_away(tmp_path: Path) -> None:
    outside = tmp_path / "mine.txt"
    outside.write_text("mine", encoding="utf-8")
    folder = tmp_path / "export"
    (folder / "projects" / "old").mkdir(parents=True)
    (folder / "projects" / "old" / "records.jsonl").write_text("", encoding="utf-8")
    (folder / "notes.md").write_text("mine", encoding="utf-8")
    old = ExportManifest(("projects/old/records.jsonl", "../mine.txt", "README.md"))
    remove_old(folder, old, ExportManifest(("README.md",)))
    assert outside.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in folder.rglob("*")] == ["notes.md"]


def test_the_list_is_the_same_for_the_same_files() -> None:
    assert ExportManifest(("b", "a")).to_text() == ExportManifest(("a", "b")).to_text()
    assert json.loads(ExportManifest(("a",)).to_text())["files"] == ["a"]
