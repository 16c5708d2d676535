import asyncio
from pathlib import Path

import pytest

from data_folders import filled
from everkept.app.engines import build_empty_library
from everkept.settings import read_settings
from everkept.values import replace


def test_a_folder_without_data_has_a_library_of_nothing(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        library = build_empty_library(read_settings({"data_dir": folder, "config": "none"}, {}))
        assert library is not None
        assert asyncio.run(library.list_projects()) == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("gone", [(), ("_meta.db", "user.db", "history.db")])
def test_where_anything_is_stored_it_is_not_overlooked(tmp_path: Path, gone: tuple[str, ...]) -> None:
    filled(tmp_path, "shop")
    for name in gone:
        (tmp_path / name).unlink()
    assert build_empty_library(read_settings({"data_dir": tmp_path, "config": "none"}, {})) is None


def test_what_is_in_memory_alone_has_no_folder(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path, "config": "none"}, {})
    assert build_empty_library(replace(settings, deployment_mode="embedded-memory")) is None


@pytest.mark.parametrize("engine", ["sqlite", "surreal"])
def test_what_holds_nothing_says_which_engine_it_is_of(tmp_path: Path, engine: str) -> None:
    settings = read_settings({"data_dir": tmp_path / "none", "config": "none", "engine": engine}, {})
    library = build_empty_library(settings)
    assert library is not None
    condition = library.condition
    assert (condition.engine, condition.mode) == (engine, "embedded-file")
    assert Path(condition.place).is_relative_to(tmp_path / "none")
    assert [*tmp_path.iterdir()] == []


def test_where_surrealdb_has_files_or_a_server_they_are_asked(tmp_path: Path) -> None:
    files = {"data_dir": tmp_path, "config": "none", "engine": "surreal"}
    (tmp_path / "surreal" / "clog").mkdir(parents=True)
    assert build_empty_library(read_settings(files, {})) is None
    served = {"data_dir": tmp_path / "none", "config": "none", "database_url": "ws://127.0.0.1:1"}
    assert build_empty_library(read_settings(served, {})) is None
