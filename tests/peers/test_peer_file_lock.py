import threading
from pathlib import Path

import pytest

from everkept.core.peers import Peer
from everkept.errors import Conflict, NotFound
from everkept.peers.peer_file import PeerList


def peer(name: str) -> Peer:
    return Peer(name, "host", 443, "ab" * 32, "evk_x")


def test_the_list_is_kept(tmp_path: Path) -> None:
    PeerList(tmp_path / "data").add(peer("anna"))
    assert PeerList(tmp_path / "data").read_peers().peers == (peer("anna"),)
    PeerList(tmp_path / "data").remove(" ANNA ")
    assert PeerList(tmp_path / "data").read_peers().peers == ()
    with pytest.raises(NotFound):
        PeerList(tmp_path / "data").remove("anna")


def test_of_many_who_add_somebody_at_once_none_is_lost(tmp_path: Path) -> None:
    threads = [threading.Thread(target=PeerList(tmp_path).add, args=(peer(f"p{number}"),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(PeerList(tmp_path).read_peers().peers) == 8
    with pytest.raises(Conflict):
        PeerList(tmp_path).add(peer("p3"))
