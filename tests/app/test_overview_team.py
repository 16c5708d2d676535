from pathlib import Path

from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.accounts import Accounts
from everkept.app.overview import TeamOverview, read_team
from everkept.core.peers import Peer
from everkept.engines.memory.library import MemoryLibrary
from everkept.peers.peer_file import PeerList
from records import DAY_ONE


class Home:
    """A data folder without databases: its accounts are in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        library = MemoryLibrary()
        self.accounts = Accounts(library, lambda: DAY_ONE)
        self._guarded = GuardedLibrary(library, lambda: DAY_ONE)

    async def read_team(self) -> TeamOverview | None:
        return await read_team(self.accounts, self._guarded, self._folder)


async def test_where_it_is_one_persons_there_is_no_team(tmp_path: Path) -> None:
    assert await Home(tmp_path).read_team() is None


async def test_users_and_servers_that_may_ask_are_counted_apart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name in ("anna", "bert"):
        await home.accounts.create_token(name, "")
    await home.accounts.create_token("carl", "", peer=True)
    assert await home.read_team() == TeamOverview(users=2, servers=1)


async def test_peers_and_the_access_log_are_those_of_the_folder(tmp_path: Path) -> None:
    PeerList(tmp_path).add(Peer("anna", "127.0.0.1", 1, "ab" * 32, "evkp_x"))
    log = tmp_path / "access"
    log.mkdir()
    (log / "access.jsonl").write_bytes(b"x" * 70)
    (log / "access-1.jsonl").write_bytes(b"x" * 30)
    (log / "access.lock").write_bytes(b"x")
    assert await Home(tmp_path).read_team() == TeamOverview(peers=1, access_log=str(log), access_log_bytes=100)


async def test_a_list_of_peers_that_cannot_be_read_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text("nonsense", "utf-8")
    home = Home(tmp_path)
    await home.accounts.create_token("anna", "")
    told = await home.read_team()
    assert told is not None
    assert (told.users, told.peers) == (1, 0)
    assert "peers.json" in (told.problem or "")
