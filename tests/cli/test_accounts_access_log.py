from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.accounts.access_log import BEGUN_OUTCOME, FLOOD_LINES, LOG_FOLDER, MAX_FILES, AccessLog, LoggedCall
from everkept.core.times import read_clock
from everkept.values import replace
from records import DAY_ONE

Run = Callable[..., Any]

READ = LoggedCall("1", DAY_ONE, "anna", False, "editor 2", "192.0.2.1", "search_nodes", "p", 3, "ok", 2)
ASKED = LoggedCall("2", DAY_ONE + 1_000, "office", True, "", "", "/peers/search", None, 9, "ok")
FORGED = LoggedCall("3", DAY_ONE + 2_000, "anna", False, "a\nb", "", "\x1b[2J", "x\ny", 0, "not_found")


@pytest.fixture
def written(tmp_path: Path) -> AccessLog:
    return AccessLog(tmp_path / "data" / LOG_FOLDER)


def test_where_nobody_called_it_says_so_and_makes_nothing(everkept: Run, tmp_path: Path) -> None:
    shown = everkept("access-log")
    assert (shown.status, shown.out) == (0, "")
    assert f"0 calls in {tmp_path / 'data' / LOG_FOLDER}" in shown.err
    assert "--data-dir" in shown.err
    assert everkept("access-log", "--json").json == {"accesses": [], "broken_lines": 0}
    assert not (tmp_path / "data").exists()


def test_a_line_says_who_did_what_where_and_how_it_ended(everkept: Run, written: AccessLog) -> None:
    written.write(READ)
    written.write(ASKED)
    first, second = everkept("access-log").out.splitlines()
    for told in ("2023-11-14 22:13:20", "anna", "search_nodes", "in p", "ok", "2 ids", "editor 2"):
        assert told in first
    assert "office (a server)  /peers/search  ok" in second


def test_what_a_caller_made_up_cannot_look_like_a_line(everkept: Run, written: AccessLog) -> None:
    written.write(FORGED)
    shown = everkept("access-log").out
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown


def test_calls_are_chosen_by_user_project_time_and_number(everkept: Run, written: AccessLog) -> None:
    for access in (READ, ASKED, FORGED):
        written.write(access)

    def calls(*options: str) -> list[str]:
        shown = everkept("access-log", "--json", *options).json
        return [access["call"] for access in shown["accesses"]]

    assert calls("--user", "Anna") == ["1", "3"]
    assert calls("--project", "p") == ["1"]
    assert calls("--since", "2023-11-15") == []
    assert calls("--since", "2023-11-01") == ["1", "2", "3"]
    assert calls("--limit", "1") == ["3"]
    written.write(replace(READ, call="4", ids=("r1", "r2")))
    assert calls("--id", "r2") == ["4"]


def test_calls_that_may_have_touched_a_record_are_told_of(everkept: Run, written: AccessLog) -> None:
    written.write(replace(READ, count=2, ids=("r1",)))
    written.write(replace(READ, call="2", outcome=BEGUN_OUTCOME))
    shown = everkept("access-log", "--id", "r2")
    assert "2 more calls may have touched it" in shown.err
    assert everkept("access-log", "--id", "r2", "--json").json["may_have_touched"] == 2
    shown = everkept("access-log", "--id", "r1")
    assert len(shown.out.splitlines()) == 1
    assert "1 more call may have touched it" in shown.err
    assert "may have" not in everkept("access-log").err


def test_lines_that_cannot_be_read_are_told_of(everkept: Run, written: AccessLog, tmp_path: Path) -> None:
    written.write(READ)
    with (tmp_path / "data" / LOG_FOLDER / "access.jsonl").open("a", encoding="utf-8") as file:
        file.write("nonsense\n")
    shown = everkept("access-log")
    assert len(shown.out.splitlines()) == 1
    assert "1 line skipped" in shown.err


@pytest.mark.parametrize("options", [("--since", "whenever"), ("--user", "a b"), ("--limit", "0")])
def test_a_mistake_is_told(everkept: Run, options: tuple[str, str]) -> None:
    refused = everkept("access-log", *options)
    assert refused.status == 2
    assert options[1] in refused.err


@pytest.mark.parametrize(("days", "is_warned"), [(0.5, True), (2, False)])
def test_a_log_that_goes_back_less_than_a_day_is_told_of(
    everkept: Run, written: AccessLog, days: float, is_warned: bool
) -> None:
    at = read_clock() - int(days * 86_400 * 1_000_000)
    written.write(replace(READ, at=at))
    assert "Older lines of" not in everkept("access-log").err
    folder = written.get_folder("anna")
    for number in range(MAX_FILES - 1):
        (folder / f"access-{number}.jsonl").touch()
    assert ("Older lines of" in everkept("access-log").err) == is_warned
    assert everkept("access-log", "--json").json["accesses"]


def test_whom_the_owner_lets_in_and_out_is_noted(everkept: Run) -> None:
    own = everkept("token", "--json").json["id"]
    hers = everkept("token", "--user", "anna", "--json").json["id"]
    everkept("token", "--peer", "berlin")
    everkept("token", "revoke", hers)
    everkept("account", "remove", "anna", "--yes")

    def noted(*options: str) -> list[tuple[str, str, str | None, list[str]]]:
        found = everkept("access-log", "--json", *options).json["accesses"]
        return [(each["user"], each["what"], each["about"], each["ids"]) for each in found]

    done = [
        ("owner", "token", "anna", [hers]),
        ("owner", "token revoke", "anna", [hers]),
        ("owner", "account remove", "anna", []),
    ]
    assert noted("--user", "anna") == done
    assert noted("--user", "Owner")[0] == ("owner", "token", None, [own])
    assert len(noted()) == 5
    assert "owner  token revoke  anna  ok  1 id" in everkept("access-log").out


def test_what_the_owner_does_is_noted_before_it_is_done(everkept: Run, written: AccessLog) -> None:
    everkept("create-project", "shop")
    hers = everkept("token", "--user", "Anna", "--json").json["id"]
    everkept("grant", "shop", "--user", "Anna")
    everkept("revoke", "shop", "--user", "Anna")
    everkept("token", "revoke", hers)
    everkept("token", "revoke", hers)
    everkept("account", "remove", "Anna", "--yes")
    lines = [access for access in written.read() if access is not None]
    begun, ended = lines[::2], lines[1::2]
    assert [each.call for each in begun] == [each.call for each in ended]
    assert {each.outcome for each in begun} == {BEGUN_OUTCOME}
    assert [(each.what, each.about, each.outcome) for each in ended] == [
        ("token", "anna", "ok"),
        ("grant read", "anna", "ok"),
        ("revoke", "anna", "ok"),
        ("token revoke", "anna", "ok"),
        ("token revoke", None, "not_found"),
        ("account remove", "anna", "ok"),
    ]
    assert [each.about for each in begun] == [each.about for each in ended]


@pytest.mark.parametrize(
    "mistake",
    [
        ("grant", "shop", "--user", "nobody"),
        ("grant", "nothing", "--user", "anna"),
        ("revoke", "shop", "--user", "nobody"),
        ("token", "--user", "a b"),
        ("account", "remove", "nobody", "--yes"),
    ],
)
def test_of_whom_there_is_none_nothing_is_noted(everkept: Run, written: AccessLog, mistake: tuple[str, ...]) -> None:
    everkept("create-project", "shop")
    everkept("token", "--user", "anna")
    before = len(list(written.read()))
    assert everkept(*mistake).status == 2
    assert len(list(written.read())) == before


def test_what_the_owner_does_is_done_though_it_cannot_be_noted(everkept: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LOG_FOLDER).write_text("in the way", encoding="utf-8")
    made = everkept("token", "--user", "anna", "--json")
    assert made.status == 0
    assert "access log" in made.err
    assert everkept("token", "revoke", made.json["id"]).status == 0


def test_a_flood_is_shown_as_one_line_with_its_number(everkept: Run, written: AccessLog) -> None:
    for number in range(FLOOD_LINES + 1_501):
        written.write(replace(READ, call=str(number)))
    lines = everkept("access-log", "--limit", "1").out.splitlines()
    assert "and 1,500 more like this" in lines[0]
    assert everkept("access-log", "--json").json["accesses"][-1]["more"] == 1_500
