import re
from pathlib import Path

import pytest

from everkept.transcripts.cursor_agents import find_folder


def slug(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", str(path)).strip("-")


@pytest.mark.parametrize("name", ["shop", "shop-api", "my_shop.v2", ".hidden", "a b"])
def test_a_name_leads_to_the_folder_that_is_there(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name / "src"
    folder.mkdir(parents=True)
    assert find_folder(slug(folder)) == str(folder)
    assert find_folder(slug(folder).replace("--", "-")) == str(folder)


def test_a_name_that_fits_two_folders_leads_to_none(tmp_path: Path) -> None:
    (tmp_path / "shop" / "api").mkdir(parents=True)
    (tmp_path / "shop-api").mkdir()
    assert find_folder(slug(tmp_path / "shop-api")) is None


def test_a_name_of_a_folder_that_is_gone_leads_to_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert find_folder(slug(tmp_path / "gone")) is None
    assert find_folder(slug(tmp_path / "file")) is None


@pytest.mark.parametrize("name", ["", "-", "empty-window", "1700000000000", "~", "\0"])
def test_a_name_that_is_of_no_folder_leads_to_none(name: str) -> None:
    assert find_folder(name) is None
