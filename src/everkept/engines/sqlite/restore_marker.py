"""The marker of a restore that has begun to change files and is not finished."""

import json
import shutil
from pathlib import Path

from everkept.core.care import Unfinished
from everkept.core.disk import replace

STAGE = "restoring-"  # begins the name of the folder that copies are verified in
ABOUT = "about.json"  # in it from the first change on: what is restored, and the safety copy


def begin(stage: Path, backup: Path, safety: Path | None) -> None:
    """On the disk before anything is changed."""
    told = {"backup": str(backup), "safety": str(safety) if safety else None}
    replace(stage / ABOUT, json.dumps(told).encode("utf-8"))


def end(folder: Path) -> None:
    """Also of those that were cut short before; nobody else restores meanwhile."""
    for about in folder.glob(f"{STAGE}*/{ABOUT}"):
        about.unlink()
        shutil.rmtree(about.parent, ignore_errors=True)


def is_unfinished(stage: Path) -> bool:
    return (stage / ABOUT).exists()


def unfinished(folder: Path) -> Unfinished | None:
    """The newest; None where every restore has come to its end."""
    found = sorted(folder.glob(f"{STAGE}*/{ABOUT}"), key=lambda about: about.stat().st_mtime)
    if not found:
        return None
    try:
        told = json.loads(found[-1].read_text("utf-8"))
        return Unfinished(folder, str(told["backup"]), told["safety"])
    except (OSError, ValueError, KeyError, TypeError):
        return Unfinished(folder, "FILE", None)
