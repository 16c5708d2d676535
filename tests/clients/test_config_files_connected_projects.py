from pathlib import Path

import pytest

from everkept.clients.config_files import PROJECTS_FILE, forget_projects, read_connected_projects, remember_project


def test_projects_are_remembered_once_and_while_they_exist(tmp_path: Path) -> None:
    data, shop, blog = (tmp_path / name for name in ("data", "shop", "blog"))
    shop.mkdir()
    blog.mkdir()
    assert read_connected_projects(data) == []
    for folder in (shop, blog, shop):
        remember_project(data, folder)
    assert read_connected_projects(data) == [blog, shop]
    blog.rmdir()
    assert read_connected_projects(data) == [shop]
    forget_projects(data, [shop])
    assert not (data / PROJECTS_FILE).exists()


@pytest.mark.parametrize("content", ["", "{", "7", '{"a": 1}', '[1, null, "no folder"]', "[" * 100_000])
def test_a_damaged_list_counts_as_empty(tmp_path: Path, content: str) -> None:
    (tmp_path / PROJECTS_FILE).write_text(content, encoding="utf-8")
    assert read_connected_projects(tmp_path) == []
    remember_project(tmp_path, tmp_path)
    assert read_connected_projects(tmp_path) == [tmp_path]
