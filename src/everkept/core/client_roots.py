"""Workspace folders of a client, which the protocol calls roots.

A server asks for them at the start and when they change.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from everkept.core.sessions import Session

JSON = dict[str, Any]

ROOTS_METHOD = "roots/list"
MAX_ROOTS = 100
MAX_PATH_CHARACTERS = 4_096
WAIT_SECONDS = 5.0  # a call waits so long for the folders; a later answer still counts for later calls

log = logging.getLogger(__name__)


class ClientRoots:
    """The question for the client's folders. The session gets the answer."""

    def __init__(self, session: Session, send: Callable[[JSON], None]) -> None:
        self._session = session
        self._send = send
        self._count = 0
        self._pending: asyncio.Future[None] | None = None

    def ask(self) -> None:
        """Ask the client. Calls wait for the newest answer."""
        self._count += 1
        if self._pending is None or self._pending.done():
            self._pending = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": self._question_id, "method": ROOTS_METHOD})

    def take_answer(self, message: Mapping[str, Any]) -> None:
        """Read an answer of the client. Ignore one that is not for the newest question."""
        if self._pending is None or message.get("id") != self._question_id:
            return
        if "result" in message:
            self._session.roots = parse_roots(message["result"])
        else:
            log.debug("the client did not list its folders: %s", message.get("error"))
        if not self._pending.done():
            self._pending.set_result(None)

    async def settle(self) -> None:
        """Wait until the folders are known. A client that does not answer delays only the first calls."""
        if self._pending is None or self._pending.done():
            return
        await asyncio.wait([self._pending], timeout=WAIT_SECONDS)
        if not self._pending.done():
            log.warning("the client did not list its folders in %d s", WAIT_SECONDS)
            self._pending.set_result(None)

    @property
    def _question_id(self) -> str:
        return f"roots-{self._count}"


def parse_roots(result: object) -> tuple[Path, ...]:
    """Return the folders of this machine in an answer, in the client's order."""
    listed: object = cast(JSON, result).get("roots") if isinstance(result, dict) else None
    found: list[Path] = []
    for each in cast(list[object], listed)[:MAX_ROOTS] if isinstance(listed, list) else ():
        uri = cast(JSON, each).get("uri") if isinstance(each, dict) else None
        folder = parse_file_uri(uri) if isinstance(uri, str) else None
        if folder is not None and folder not in found and _is_folder(folder):
            found.append(folder)
    return tuple(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # the name is too long, or the folder around it is closed to us
        return False


def parse_file_uri(uri: str) -> Path | None:
    """Return the path in a file address, or None if it does not name a file of this machine."""
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    if parts.scheme.lower() != "file" or "\0" in path:
        return None
    if os.name == "nt":
        share = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
        folder = Path(share + path if share else path.lstrip("/"))
    else:
        folder = Path(path)
        if parts.netloc not in ("", "localhost"):
            return None
    return folder if folder.is_absolute() else None


def choose_root(roots: tuple[Path, ...], arguments: object) -> Path | None:
    """Return the root that a path in the arguments is in, the innermost one, or None."""
    for text in _list_texts(arguments):
        path = parse_file_uri(text) if text.startswith("file:") else Path(text)
        if path is not None and path.is_absolute():
            around = [root for root in roots if path.is_relative_to(root)]
            if around:
                return max(around, key=lambda root: len(root.parts))
    return None


def _list_texts(value: object) -> list[str]:
    """Return the short one-line texts in a JSON value, in order."""
    found: list[str] = []
    waiting: list[object] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if len(each) <= MAX_PATH_CHARACTERS and "\n" not in each and "\0" not in each:
                found.append(each)
        elif isinstance(each, Mapping):
            waiting += reversed(list(cast(Mapping[str, object], each).values()))
        elif isinstance(each, list):
            waiting += reversed(cast(list[object], each))
    return found
