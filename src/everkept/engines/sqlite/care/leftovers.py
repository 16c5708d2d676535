"""What processes that died have left in a data folder."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from everkept.core.care import DOCTOR_FIX, Finding
from everkept.engines.sqlite.care.scratch import abandoned
from everkept.engines.sqlite.founding import FOUNDED, STALE
from everkept.engines.sqlite.unfinished import STAGE, is_unfinished


def check_leftovers(folder: Path, check: str) -> Iterator[Finding]:
    for stage in abandoned(folder, STAGE):
        if not is_unfinished(stage):
            yield _leftover(check, stage, "A restore that was given up left a folder")
    for path in _drafts(folder):
        if _age(path) > STALE:
            yield _leftover(check, path, "A process that died left a draft")


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _leftover(check: str, path: Path, what: str) -> Finding:
    def remove() -> str:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return f"removed {path}"

    return Finding(check, "advice", f"{what}: {path}.", DOCTOR_FIX, remove)


def _drafts(folder: Path) -> list[Path]:
    founded = [path for name in FOUNDED for path in folder.glob(f"{name}.*.new*")]
    locks = [path for name in FOUNDED for path in folder.glob(f"{name}.lock")]
    return [*founded, *locks, *(folder / "archive").glob("*.db.new*")]
