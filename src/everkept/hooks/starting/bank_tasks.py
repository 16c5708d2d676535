"""The open tasks of the memory bank in a folder, where it has one."""

import re
from pathlib import Path

from everkept.app.workspaces import checkout_of

MOST_READ = 200_000  # bytes; a list of tasks that is longer is read in part
_PLACEHOLDER = re.compile(r"\[[^\]]*\]")  # an item of a template that nobody filled in


def open_tasks(folder: Path, bank: str) -> list[str]:
    """In their order; none where there is no bank, or none that can be read."""
    place = _bank_of(folder, bank)
    if place is None:
        return []
    from everkept.families.bank.model import ACTIVE, LEGACY_NAMES

    texts = (_text(place / name, place) for name in (ACTIVE, LEGACY_NAMES[ACTIVE]))
    text = next(filter(None, texts), "")
    if not text:
        return []
    from everkept.families.bank.text.headings import TASKS
    from everkept.families.bank.text.lists import listed
    from everkept.families.bank.text.markdown import box_of, without_box

    items = [without_box(item) for item in listed(text, TASKS) if box_of(item) is not True]
    return [item for item in items if not _PLACEHOLDER.fullmatch(item.strip())]


def _bank_of(folder: Path, name: str) -> Path | None:
    """The folder's own, else that of the repository around it; not what only a link leads to."""
    try:
        for home in (folder.resolve(), checkout_of(folder)):
            if home is not None and (home / name).is_dir():
                place = (home / name).resolve()
                return place if place.is_relative_to(home.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: a circle of links
        return None
    return None


def _text(file: Path, place: Path) -> str:
    try:
        if not file.is_file() or not file.resolve().is_relative_to(place):
            return ""
        with file.open("rb") as opened:
            return opened.read(MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""
