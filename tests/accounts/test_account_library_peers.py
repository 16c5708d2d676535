from pathlib import Path

from everkept.accounts.account_library import OwnerPeers
from everkept.core.peers import PeerQuestion
from everkept.core.sessions import Account, act_as
from everkept.peers.peer_file import PeerFile
from peer_servers import found, replying, result, standing_in


async def test_only_the_owners_question_goes_out_and_a_peers_never_goes_on(tmp_path: Path) -> None:
    async with standing_in(tmp_path, replying("200 OK", found(result("here")))) as there:
        PeerFile(tmp_path).add(there.peer())
        peers, question = OwnerPeers(tmp_path), PeerQuestion("anything")
        for account in (Account("bert"), Account("cleo", is_peer=True)):
            with act_as(account):
                assert not (await peers.ask(question)).is_anybody
        assert there.connections == 0
        [answer] = (await peers.ask(question)).answers
        assert [each.content for each in answer.findings] == ["here"]


async def test_who_was_added_a_moment_ago_is_asked(tmp_path: Path) -> None:
    peers = OwnerPeers(tmp_path)
    assert not (await peers.ask(PeerQuestion("x"))).is_anybody
    async with standing_in(tmp_path, replying("200 OK", found())) as there:
        PeerFile(tmp_path).add(there.peer())
        assert len((await peers.ask(PeerQuestion("x"))).answers) == 1
