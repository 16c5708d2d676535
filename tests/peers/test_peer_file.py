import json
import sys
from pathlib import Path
from typing import Any

import pytest

from everkept.core.peers import MAX_PEERS, Peer
from everkept.errors import Conflict, InvalidInput, NotFound, Refused
from everkept.peers.peer_file import PEERS_FILE, PeerFile

ANNA = Peer("anna", "anna.example", 8443, "ab" * 32, "evk_anna")
BERT = Peer("bert", "::1", 443, "cd" * 32, "evk_bert", time_limit=2.5)


@pytest.fixture
def book(tmp_path: Path) -> PeerFile:
    return PeerFile(tmp_path / "data")


def test_who_was_added_is_listed_until_they_are_removed(book: PeerFile) -> None:
    assert book.read_peers().peers == ()
    book.add(BERT)
    book.add(ANNA)
    assert book.read_peers().peers == (ANNA, BERT)
    assert book.read_peers().warnings == ()
    book.remove("bert")
    assert book.read_peers().peers == (ANNA,)
    assert [each.name for each in book.path.parent.iterdir()] == [PEERS_FILE]


def test_a_name_is_taken_once(book: PeerFile) -> None:
    book.add(ANNA)
    with pytest.raises(Conflict):
        book.add(Peer("anna", "other.example", 1, "ee" * 32, "evk_other"))
    assert book.read_peers().peers == (ANNA,)


def test_nobody_is_removed_who_is_not_there(book: PeerFile) -> None:
    with pytest.raises(NotFound):
        book.remove("anna")


def test_there_is_an_end_to_how_many_are_asked(book: PeerFile) -> None:
    for number in range(MAX_PEERS):
        book.add(Peer(f"p{number}", "host", 1, "ab" * 32, "evk_x"))
    with pytest.raises(Refused):
        book.add(ANNA)
    assert len(book.read_peers().peers) == MAX_PEERS


def test_the_file_is_its_owners_alone_and_says_so_when_it_is_not(book: PeerFile) -> None:
    book.add(ANNA)
    if sys.platform != "win32":
        assert book.path.stat().st_mode & 0o777 == 0o600
        book.path.chmod(0o644)
        [warning] = book.read_peers().warnings
        assert str(book.path) in warning
        book.add(BERT)
    assert book.read_peers().warnings == ()


GOOD = {"address": "https://anna.example", "token": "evk_x", "fingerprint": "sha256:" + "ab" * 32}


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        b"\xff",
        b"[]",
        b"{}",
        b'{"peers": []}',
        b'{"peers": {"anna": null}}',
        b"[" * 100_000,
        *(
            json.dumps({"peers": {"anna": GOOD | wrong}}).encode()
            for wrong in (
                {"address": "http://anna.example"},
                {"token": 7},
                {"token": "a b"},
                {"fingerprint": "sha256:00"},
                {"time_limit": "long"},
                {"time_limit": -1},
                {"time_limit": 1e9},
                {"time_limit": True},
            )
        ),
        json.dumps({"peers": {"not a name": GOOD}}).encode(),
        json.dumps({"peers": {f"p{n}": GOOD for n in range(MAX_PEERS + 1)}}).encode(),
    ],
)
def test_a_file_that_is_wrong_says_so_and_stays_as_it_is(book: PeerFile, content: bytes) -> None:
    book.path.parent.mkdir()
    book.path.write_bytes(content)
    for change in (book.read_peers, lambda: book.add(ANNA), lambda: book.remove("anna")):
        with pytest.raises(InvalidInput) as wrong:
            change()
        assert str(book.path) in wrong.value.message
    assert book.path.read_bytes() == content


def test_a_file_by_hand_may_leave_out_what_has_a_default(book: PeerFile) -> None:
    rows: dict[str, Any] = {"anna": GOOD, "bert": GOOD | {"time_limit": 3}}
    book.path.parent.mkdir()
    book.path.write_text(json.dumps({"peers": rows}), encoding="utf-8")
    assert [each.time_limit for each in book.read_peers().peers] == [5.0, 3.0]
