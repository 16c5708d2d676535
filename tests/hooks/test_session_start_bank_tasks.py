from pathlib import Path

import pytest

from everkept.hooks.session_start import MAX_TASK_BYTES, read_open_tasks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    return tmp_path


def write(folder: Path, text: str, name: str = "active-context.md") -> None:
    (folder / "memory-bank").mkdir(exist_ok=True)
    (folder / "memory-bank" / name).write_text(text, encoding="utf-8")


def test_without_a_bank_there_are_no_tasks(folder: Path) -> None:
    assert read_open_tasks(folder, "memory-bank") == []
    (folder / "memory-bank").mkdir()
    assert read_open_tasks(folder, "memory-bank") == []


def test_open_tasks_are_those_that_are_not_ticked_off(folder: Path) -> None:
    write(folder, "## Tasks\n- [ ] One\n- [x] Two\n- Three\n- [Task 1]\n\n## Notes\n- Four\n")
    assert read_open_tasks(folder, "memory-bank") == ["One", "Three"]


def test_below_a_repositorys_root_its_bank_is_meant(folder: Path) -> None:
    write(folder, "## Tasks\n- One\n", "activeContext.md")
    assert read_open_tasks(folder / "src", "memory-bank") == ["One"]
    write(folder / "src", "## Tasks\n- Of src\n")
    assert read_open_tasks(folder / "src", "memory-bank") == ["Of src"]


def test_a_bank_has_the_name_that_settings_give_it(folder: Path) -> None:
    write(folder, "## Tasks\n- One\n")
    assert read_open_tasks(folder, "notes") == []


def test_what_cannot_be_read_has_no_tasks(folder: Path) -> None:
    (folder / "memory-bank" / "active-context.md").mkdir(parents=True)
    assert read_open_tasks(folder, "memory-bank") == []
    assert read_open_tasks(folder / "nowhere", "memory-bank") == []


def test_a_huge_file_is_read_in_part(folder: Path) -> None:
    write(folder, "## Tasks\n- One\n\n## Rest\n" + "ä" * MAX_TASK_BYTES)
    assert read_open_tasks(folder, "memory-bank") == ["One"]


@pytest.mark.parametrize("link", ["memory-bank", "memory-bank/active-context.md"])
def test_what_lies_elsewhere_is_not_read(folder: Path, tmp_path_factory: pytest.TempPathFactory, link: str) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere, "## Tasks\n- One\n")
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(elsewhere / link)
    assert read_open_tasks(folder, "memory-bank") == []
