"""The launchers that were written into clients' files: to know them again after a move.

The launcher of a checkout is called `run`, as many scripts are. While it is there, the folder
around it tells whose it is; once the checkout has moved, only this list does.
"""

import json
from pathlib import Path
from typing import Any, cast

from everkept.clients.files import read, replace
from everkept.errors import EverkeptError

FILE = "setup-launchers.json"  # in the data folder


def known_launchers(data_dir: Path) -> frozenset[str]:
    """None where the list cannot be read: what is not known is left alone."""
    try:
        held = read(data_dir / FILE)
        listed: object = json.loads(held.text) if held else []
    except (EverkeptError, ValueError):
        return frozenset()
    items = cast(list[Any], listed) if isinstance(listed, list) else []
    return frozenset(item for item in items if isinstance(item, str))


def remember_launcher(data_dir: Path, launcher: str) -> None:
    known = known_launchers(data_dir)
    if launcher not in known:
        listed = json.dumps(sorted({*known, launcher}), indent=2)
        replace(data_dir / FILE, f"{listed}\n".encode())
