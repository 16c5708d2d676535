"""Folders of the projects in which setup wrote the configuration of a client."""

from collections.abc import Iterable
from pathlib import Path

from everkept.clients.config_files import read_text_list, write_text_list

PROJECTS_FILE = "setup-projects.json"  # in the data folder


def read_connected_projects(data_dir: Path) -> list[Path]:
    """Return the folders that still exist. An unreadable list counts as empty."""
    return [folder for item in read_text_list(data_dir / PROJECTS_FILE) if (folder := Path(item)).is_dir()]


def remember_project(data_dir: Path, folder: Path) -> None:
    known = read_connected_projects(data_dir)
    if folder not in known:
        write_text_list(data_dir / PROJECTS_FILE, map(str, {*known, folder}))


def forget_projects(data_dir: Path, folders: Iterable[Path]) -> None:
    known = set(read_connected_projects(data_dir))
    if left := known - set(folders):
        write_text_list(data_dir / PROJECTS_FILE, map(str, left))
    else:
        (data_dir / PROJECTS_FILE).unlink(missing_ok=True)
