"""The open tasks of the memory bank in a folder, where it has one."""

import re
from pathlib import Path

from recollect.app.workspaces import checkout_of

MOST_READ = 200_000  # bytes; a list of tasks that is longer is read in part
_PLACEHOLDER = re.compile(r"\[[^\]]*\]")  # an item of a template that nobody filled in


def open_tasks(folder: Path, bank: str) -> list[str]:
    """In their order; none where there is no bank, or none that can be read."""
    place = _bank_of(folder, bank)
    if place is None:
        return []
    from recollect.families.bank.model import ACTIVE, LEGACY_NAMES

    text = next(filter(None, (_text(place / n) for n in (ACTIVE, LEGACY_NAMES[ACTIVE]))), "")
    if not text:
        return []
    from recollect.families.bank.text.headings import TASKS
    from recollect.families.bank.text.lists import listed
    from recollect.families.bank.text.markdown import box_of, without_box

    items = [without_box(item) for item in listed(text, TASKS) if box_of(item) is not True]
    return [item for item in items if not _PLACEHOLDER.fullmatch(item.strip())]


def _bank_of(folder: Path, name: str) -> Path | None:
    """The folder's own, else that of the repository around it."""
    try:
        if (folder / name).is_dir():
            return folder / name
        root = checkout_of(folder)
        return root / name if root is not None and (root / name).is_dir() else None
    except OSError:
        return None


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            return opened.read(MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""
