from everkept.care.doctor import PEERS_CHECK, diagnose
from everkept.care.findings import CheckContext, DoctorFinding
from everkept.core.peers import Peer
from everkept.peers.peer_file import PeerList


def found(patient: CheckContext) -> list[DoctorFinding]:
    return [each for each in diagnose(patient).findings if each.check == PEERS_CHECK]


def test_where_nobody_can_be_asked_nothing_is_said(patient: CheckContext) -> None:
    assert found(patient) == []


def test_a_peer_that_is_away_is_told_and_is_no_problem_of_ours(patient: CheckContext) -> None:
    PeerList(patient.folder).add(Peer("anna", "127.0.0.1", 1, "ab" * 32, "evkp_x"))
    [finding] = found(patient)
    assert (finding.severity, finding.command) == ("advice", "everkept peer check")
    assert finding.what.startswith("anna: https://127.0.0.1:1 cannot be reached")


def test_a_list_that_cannot_be_read_is_a_problem(patient: CheckContext) -> None:
    (patient.folder / "peers.json").write_text("nonsense", "utf-8")
    [finding] = found(patient)
    assert finding.severity == "problem"
    assert "peers.json" in finding.what
