from pathlib import Path

from everkept.accounts.accounts import Accounts
from everkept.app.overview import TeamOverview, read_team
from everkept.core.peers import Peer
from everkept.engines.memory.library import MemoryLibrary
from everkept.peers.peer_file import PeerList
from records import DAY_ONE


def accounts() -> Accounts:
    return Accounts(MemoryLibrary(), lambda: DAY_ONE)


async def test_where_it_is_one_persons_there_is_no_team(tmp_path: Path) -> None:
    assert await read_team(accounts(), tmp_path) is None


async def test_users_and_servers_that_may_ask_are_counted_apart(tmp_path: Path) -> None:
    known = accounts()
    for name in ("anna", "bert"):
        await known.create_token(name, "")
    await known.create_token("carl", "", peer=True)
    assert await read_team(known, tmp_path) == TeamOverview(users=2, servers=1)


async def test_peers_and_the_access_log_are_those_of_the_folder(tmp_path: Path) -> None:
    PeerList(tmp_path).add(Peer("anna", "127.0.0.1", 1, "ab" * 32, "evkp_x"))
    log = tmp_path / "access"
    log.mkdir()
    (log / "access.jsonl").write_bytes(b"x" * 70)
    (log / "access-1.jsonl").write_bytes(b"x" * 30)
    (log / "access.lock").write_bytes(b"x")
    assert await read_team(accounts(), tmp_path) == TeamOverview(peers=1, access_log=str(log), access_log_bytes=100)


async def test_a_list_of_peers_that_cannot_be_read_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text("nonsense", "utf-8")
    known = accounts()
    await known.create_token("anna", "")
    told = await read_team(known, tmp_path)
    assert told is not None
    assert (told.users, told.peers) == (1, 0)
    assert "peers.json" in (told.problem or "")
