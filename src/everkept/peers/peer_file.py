"""The list of peers, in a file that nobody else can read, changed by one command at a time."""

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.core.disk import make_folder, replace, usable
from everkept.core.locks import WaitingLock
from everkept.core.peers import (
    LONGEST_LIMIT,
    MOST_PEERS,
    TIME_LIMIT,
    Peer,
    checked_address,
    checked_fingerprint,
    checked_name,
    checked_token,
    shown_fingerprint,
)
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused
from everkept.values import Value

FILE = "peers.json"
LARGEST = 1024 * 1024  # bytes
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Listed(Value):
    """The peers by name, and what should be known about the file."""

    peers: tuple[Peer, ...] = ()
    warnings: tuple[str, ...] = ()


class PeerBook:
    """Reads the file anew each time, so that what is written there counts at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def listed(self) -> Listed:
        """Nobody where there is no file. InvalidInput where it cannot be read."""
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(LARGEST + 1)
        except FileNotFoundError:
            return Listed()
        except OSError as error:
            raise self._unreadable(error.strerror or type(error).__name__) from None
        warnings = (self._open_to_others(),) if _is_open(mode) else ()
        return Listed(self._parsed(content), warnings)

    def add(self, peer: Peer) -> None:
        """Raises Conflict where the name is taken."""
        known = self.listed().peers
        if any(each.name == peer.name for each in known):
            raise Conflict(
                f'There is a peer "{peer.name}" already.',
                hint=f"`everkept peer remove {peer.name}` first, or choose another name.",
                name=peer.name,
            )
        if len(known) >= MOST_PEERS:
            raise Refused(f"There are {MOST_PEERS} peers already, and no more can be asked.")
        self._write((*known, peer))

    def remove(self, name: str) -> None:
        known = self.listed().peers
        rest = [each for each in known if each.name != name]
        if len(rest) == len(known):
            raise NotFound("peer", name, hint="`everkept peer list` shows them.")
        self._write(rest)

    def _write(self, peers: Sequence[Peer]) -> None:
        rows = {peer.name: _row(peer) for peer in sorted(peers, key=lambda peer: peer.name)}
        text = json.dumps({"version": 1, "peers": rows}, indent=2) + "\n"
        with usable(self.path):
            make_folder(self.path.parent)
            replace(self.path, text.encode("utf-8"))

    def _parsed(self, content: bytes) -> tuple[Peer, ...]:
        if len(content) > LARGEST:
            raise self._unreadable(f"it has more than {LARGEST:,} bytes")
        try:
            value: object = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise self._unreadable("it is no JSON") from None
        rows = cast(Mapping[str, Any], value).get("peers") if isinstance(value, dict) else None
        if not isinstance(rows, dict):
            raise self._unreadable("it has no `peers`")
        named = cast(Mapping[str, object], rows)
        if len(named) > MOST_PEERS:
            raise self._unreadable(f"it has more than {MOST_PEERS} peers")
        return tuple(self._peer(name, row) for name, row in named.items())

    def _peer(self, name: str, row: object) -> Peer:
        try:
            return _peer(name, row)
        except EverkeptError as error:
            raise self._unreadable(f'of "{name[:40]}", {error.message}') from None

    def _unreadable(self, reason: str) -> InvalidInput:
        return InvalidInput(
            f"The list of peers cannot be read: {self.path}: {reason.rstrip('.')}.",
            hint="Mend the file, or remove it and name the peers again.",
            file=str(self.path),
        )

    def _open_to_others(self) -> str:
        return (
            f"Others on this machine may read {self.path}, which holds tokens: `chmod 600` it, "
            "and let the peers make new ones."
        )


def _is_open(mode: int) -> bool:
    """On Windows the rights of a file are those of its folder, which the mode says nothing of."""
    return sys.platform != "win32" and bool(mode & _OTHERS)


def _row(peer: Peer) -> dict[str, object]:
    row: dict[str, object] = {
        "address": peer.address,
        "token": peer.token,
        "fingerprint": shown_fingerprint(peer.fingerprint),
    }
    return row if peer.time_limit == TIME_LIMIT else row | {"time_limit": peer.time_limit}


def _peer(name: str, row: object) -> Peer:
    fields = cast(dict[str, object], row if isinstance(row, dict) else {})
    host, port = checked_address(_text(fields, "address"))
    return Peer(
        name=checked_name(name),
        host=host,
        port=port,
        fingerprint=checked_fingerprint(_text(fields, "fingerprint")),
        token=checked_token(_text(fields, "token")),
        time_limit=checked_time_limit(fields.get("time_limit", TIME_LIMIT)),
    )


def _text(fields: Mapping[str, object], key: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str):
        raise InvalidInput(f"`{key}` is missing")
    return text


def checked_time_limit(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise InvalidInput("`time_limit` is no number of seconds")
    if not given <= LONGEST_LIMIT:
        raise InvalidInput(f"`time_limit` is more than {LONGEST_LIMIT:g} seconds")
    return float(given)


LOCK = "peers.lock"


class Roster:
    """Those of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._book = PeerBook(folder)
        self._lock = WaitingLock(folder / LOCK, "A change of the peers")

    def listed(self) -> Listed:
        return self._book.listed()

    def add(self, peer: Peer) -> None:
        """Raises Conflict where the name is taken."""
        with self._lock.held():
            self._book.add(peer)

    def remove(self, name: str) -> None:
        with self._lock.held():
            self._book.remove(checked_name(name))
