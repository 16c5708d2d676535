"""The list of peers, in a file that only its owner can read. A lock serializes changes."""

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.core.disk import make_folder, open_regular, replace, translate_os_errors
from everkept.core.locks import WaitingLock
from everkept.core.peers import (
    DEFAULT_SECONDS,
    MAX_PEERS,
    MAX_SECONDS,
    Peer,
    format_fingerprint,
    parse_address,
    parse_fingerprint,
    validate_peer_name,
    validate_token,
)
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused
from everkept.values import Value

PEERS_FILE = "peers.json"
MAX_FILE_BYTES = 1024 * 1024
_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO


class PeerListing(Value):
    peers: tuple[Peer, ...] = ()
    warnings: tuple[str, ...] = ()


class PeerFile:
    """Peer file, read at each use so that edits apply immediately."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / PEERS_FILE

    def read_peers(self) -> PeerListing:
        """Return the listed peers, none if the file does not exist. Raise InvalidInput if it cannot be read."""
        try:
            with open_regular(self.path) as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return PeerListing()
        except OSError as error:
            raise self._build_file_error(error.strerror or type(error).__name__) from None
        peers = self._parse_peers(content)
        # On Windows the mode does not show the file's permissions.
        if sys.platform == "win32" or not mode & _OTHERS_MODE:
            return PeerListing(peers)
        warning = (
            f"Other users of this machine can read the tokens in {self.path}. "
            "Run `chmod 600` on it, and ask the peers for new tokens."
        )
        return PeerListing(peers, (warning,))

    def add(self, peer: Peer) -> None:
        """Add a peer. Raise Conflict if the name is taken."""
        known = self.read_peers().peers
        if any(each.name == peer.name for each in known):
            raise Conflict(
                f'Peer "{peer.name}" already exists.',
                hint=f"Choose another name, or run `everkept peer remove {peer.name}` first.",
                name=peer.name,
            )
        if len(known) >= MAX_PEERS:
            raise Refused(
                f"The list already has {MAX_PEERS} peers, which is the limit.",
                hint="Remove one with `everkept peer remove`.",
            )
        self._write((*known, peer))

    def remove(self, name: str) -> None:
        known = self.read_peers().peers
        rest = [each for each in known if each.name != name]
        if len(rest) == len(known):
            raise NotFound("peer", name, hint="List peers with `everkept peer list`.")
        self._write(rest)

    def _write(self, peers: Sequence[Peer]) -> None:
        rows = {peer.name: _to_row(peer) for peer in sorted(peers, key=lambda peer: peer.name)}
        text = json.dumps({"version": 1, "peers": rows}, indent=2) + "\n"
        with translate_os_errors(self.path):
            make_folder(self.path.parent)
            replace(self.path, text.encode("utf-8"))

    def _parse_peers(self, content: bytes) -> tuple[Peer, ...]:
        if len(content) > MAX_FILE_BYTES:
            raise self._build_file_error(f"it has more than {MAX_FILE_BYTES:,} bytes")
        try:
            value: object = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise self._build_file_error("it is not JSON") from None
        rows = cast(Mapping[str, Any], value).get("peers") if isinstance(value, dict) else None
        if not isinstance(rows, dict):
            raise self._build_file_error("it has no `peers`")
        named = cast(Mapping[str, object], rows)
        if len(named) > MAX_PEERS:
            raise self._build_file_error(f"it has more than {MAX_PEERS} peers")
        return tuple(self._parse_peer(name, row) for name, row in named.items())

    def _parse_peer(self, name: str, row: object) -> Peer:
        try:
            return _parse_row(name, row)
        except EverkeptError as error:
            raise self._build_file_error(f'peer "{name[:40]}": {error.message}') from None

    def _build_file_error(self, reason: str) -> InvalidInput:
        return InvalidInput(
            f"Cannot read the list of peers in {self.path}: {reason.rstrip('.')}.",
            hint="Fix the file, or delete it and add the peers again.",
            file=str(self.path),
        )


def _to_row(peer: Peer) -> dict[str, object]:
    row: dict[str, object] = {
        "address": peer.address,
        "token": peer.token,
        "fingerprint": format_fingerprint(peer.fingerprint),
    }
    return row if peer.time_limit == DEFAULT_SECONDS else row | {"time_limit": peer.time_limit}


def _parse_row(name: str, row: object) -> Peer:
    fields = cast(dict[str, object], row if isinstance(row, dict) else {})
    host, port = parse_address(_get_text(fields, "address"))
    return Peer(
        name=validate_peer_name(name),
        host=host,
        port=port,
        fingerprint=parse_fingerprint(_get_text(fields, "fingerprint")),
        token=validate_token(_get_text(fields, "token")),
        time_limit=check_time_limit(fields.get("time_limit", DEFAULT_SECONDS)),
    )


def _get_text(fields: Mapping[str, object], key: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str):
        raise InvalidInput(f"`{key}` is missing; it must be a string")
    return text


def check_time_limit(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise InvalidInput("`time_limit` must be a positive number of seconds")
    if not given <= MAX_SECONDS:
        raise InvalidInput(f"`time_limit` must be at most {MAX_SECONDS:g} seconds")
    return float(given)


LOCK_FILE = "peers.lock"


class PeerList:
    """The peers of one data folder, changed under a lock."""

    def __init__(self, folder: Path) -> None:
        self._book = PeerFile(folder)
        self._lock = WaitingLock(folder / LOCK_FILE, "The list of peers")

    def read_peers(self) -> PeerListing:
        return self._book.read_peers()

    def add(self, peer: Peer) -> None:
        with self._lock.hold():
            self._book.add(peer)

    def remove(self, name: str) -> None:
        with self._lock.hold():
            self._book.remove(validate_peer_name(name))
