import threading
from pathlib import Path

import pytest

from everkept.core.peers import Peer
from everkept.errors import Conflict, NotFound
from everkept.peers.peer_file import Roster


def peer(name: str) -> Peer:
    return Peer(name, "host", 443, "ab" * 32, "evk_x")


def test_the_list_is_kept(tmp_path: Path) -> None:
    Roster(tmp_path / "data").add(peer("anna"))
    assert Roster(tmp_path / "data").listed().peers == (peer("anna"),)
    Roster(tmp_path / "data").remove(" ANNA ")
    assert Roster(tmp_path / "data").listed().peers == ()
    with pytest.raises(NotFound):
        Roster(tmp_path / "data").remove("anna")


def test_of_many_who_add_somebody_at_once_none_is_lost(tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=Roster(tmp_path).add, args=(peer(f"p{number}"),))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(Roster(tmp_path).listed().peers) == 8
    with pytest.raises(Conflict):
        Roster(tmp_path).add(peer("p3"))
