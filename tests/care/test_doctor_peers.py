from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.care.doctor import PEERS_CHECK, diagnose
from everkept.core.peers import Peer
from everkept.peers.peer_file import PeerList


def found(context: CheckContext) -> list[DoctorFinding]:
    return [each for each in diagnose(context).findings if each.check == PEERS_CHECK]


def test_where_nobody_can_be_asked_nothing_is_said(context: CheckContext) -> None:
    assert found(context) == []


def test_a_peer_that_is_away_is_told_and_is_no_problem_of_ours(context: CheckContext) -> None:
    PeerList(context.folder).add(Peer("anna", "127.0.0.1", 1, "ab" * 32, "evkp_x"))
    [finding] = found(context)
    assert (finding.severity, finding.command) == ("advice", "everkept peer check")
    assert finding.what.startswith("anna: cannot reach https://127.0.0.1:1")


def test_a_list_that_cannot_be_read_is_a_problem(context: CheckContext) -> None:
    (context.folder / "peers.json").write_text("nonsense", "utf-8")
    [finding] = found(context)
    assert finding.severity == "problem"
    assert "peers.json" in finding.what
