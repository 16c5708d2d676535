"""How the readers of foreign bytes are called, and the folder, the application and the loop that they share."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.settings import Settings

Read = Callable[["Bench", bytes], object]

DEEP = b"[" * 9_000  # beyond what any reader of JSON follows
LONG_NUMBER = b"9" * 5_000  # beyond what Python turns into a number


class Bench:
    """A folder, an application and an event loop that all readers share."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.folder = folder
        self.run: Callable[[Any], Any] = runner.run
        self._numbers = count()
        self.app = self.run(_open_app(folder / "app"))

    def write(self, data: bytes, name: str = "file") -> Path:
        """The only file of its folder, which is new each time."""
        path = self.folder / "one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def make_folder(self) -> Path:
        path = self.folder / str(next(self._numbers))
        path.mkdir()
        return path


async def _open_app(folder: Path) -> App:
    app = App(Settings(folder, project="test"))
    session = Session()
    await app.call(session, "create_entities", {"entities": [{"name": "Ada", "entity_type": "person"}]})
    return app


@dataclass(frozen=True)
class Parser:
    """`read` may raise `errors` and nothing else. `broke` are inputs that once did something else."""

    read: Read
    samples: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()
    broke: tuple[bytes, ...] = ()


def encode(*values: Any) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def in_text(read: Callable[[str], object]) -> Read:
    return lambda _, data: read(decode(data))
