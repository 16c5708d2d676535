import json

from everkept.app.resources import MAX_SESSIONS, AbsenceNotices, describe_absence
from everkept.core.library import ReplicaUse, UnreachableInfo
from everkept.core.sessions import Session
from everkept.tools.tool import ToolResult

PLACE = "wss://db.example.com"
AWAY = UnreachableInfo(since=1)
READ = ReplicaUse(from_replica=True, absence=AWAY)
HOUR = 3600 * 1_000_000  # microseconds


def catching_up(since: int) -> ReplicaUse:
    return ReplicaUse(from_replica=True, absence=UnreachableInfo(since, is_catching_up=True))


def result(**facts: object) -> ToolResult:
    return ToolResult(dict(facts))


def test_what_the_database_itself_gave_is_passed_on_as_it_is() -> None:
    given = result(memories=[])
    assert AbsenceNotices().mark_result(given, Session(), ReplicaUse(), PLACE) is given


def test_each_answer_from_elsewhere_is_marked_and_only_the_first_says_so_in_words() -> None:
    telling, session = AbsenceNotices(), Session()
    first = telling.mark_result(result(memories=["ä"]), session, READ, PLACE)
    second = telling.mark_result(result(memories=["ä"]), session, READ, PLACE)
    assert first.facts["degraded"] is second.facts["degraded"] is True
    (warning,) = first.facts["warnings"]
    assert warning["code"] == "degraded"
    assert "wss://db.example.com is unreachable" in warning["message"]
    assert "warnings" not in second.facts
    assert json.loads(first.text) == first.facts
    assert json.loads(second.text) == second.facts


def test_warnings_of_the_tool_itself_stay() -> None:
    own = {"code": "masked", "message": "A key was masked."}
    marked = AbsenceNotices().mark_result(result(warnings=[own]), Session(), READ, PLACE)
    assert [warning["code"] for warning in marked.facts["warnings"]] == ["masked", "degraded"]


def test_a_sentence_gets_another_one_the_first_time() -> None:
    telling, session = AbsenceNotices(), Session()
    kept = ReplicaUse(kept_here=True, absence=AWAY)
    said = ToolResult({"created": 1}, "Created 1 entity.")
    first = telling.mark_result(said, session, kept, PLACE)
    assert first.text.startswith("Created 1 entity.\n\n")
    assert "sent when it is back" in first.text
    assert telling.mark_result(said, session, kept, PLACE).text == "Created 1 entity."


def test_every_session_is_told_and_every_absence() -> None:
    telling, one, other = AbsenceNotices(), Session(), Session()
    again = ReplicaUse(from_replica=True, absence=UnreachableInfo(since=2))
    for session, noted in ((one, READ), (other, READ), (one, again)):
        assert "warnings" in telling.mark_result(result(), session, noted, PLACE).facts


def test_a_database_that_is_being_brought_what_waited_is_not_called_away() -> None:
    marked = AbsenceNotices().mark_result(result(), Session(), catching_up(1), PLACE)
    [warning] = marked.facts["warnings"]
    assert "cannot be reached" not in warning["message"]
    assert f"{PLACE} is receiving the pending writes" in warning["message"]
    assert marked.facts["degraded"] is True


def test_what_is_brought_over_now_and_then_is_told_once_an_hour() -> None:
    telling, session = AbsenceNotices(), Session()
    told = [
        "warnings" in telling.mark_result(result(), session, catching_up(at), PLACE).facts
        for at in (1, 2, HOUR, HOUR + 1, HOUR + 2)
    ]
    assert told == [True, False, False, True, False]


def test_the_end_of_an_absence_is_no_news_and_its_beginning_is() -> None:
    telling, session = AbsenceNotices(), Session()
    told = [
        "warnings" in telling.mark_result(result(), session, noted, PLACE).facts
        for noted in (catching_up(1), READ, catching_up(1), READ)
    ]
    assert told == [True, True, False, False]


def test_another_servers_answer_is_not_touched() -> None:
    passed = ToolResult({}, "text", wire={"content": []})
    assert AbsenceNotices().mark_result(passed, Session(), READ, PLACE) is passed


def test_who_was_told_is_not_kept_for_ever() -> None:
    telling, first = AbsenceNotices(), Session()
    telling.mark_result(result(), first, READ, PLACE)
    for _ in range(MAX_SESSIONS):
        telling.mark_result(result(), Session(), READ, PLACE)
    assert "warnings" in telling.mark_result(result(), first, READ, PLACE).facts


def test_a_database_that_was_never_reached_is_called_so_with_its_address() -> None:
    told = describe_absence(UnreachableInfo(5, never_reached=True), "postgresql://tpyo")
    assert "The database at postgresql://tpyo was never reached" in told
    assert "saved on this machine" in told
    assert "last seen" not in told
