import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from everkept.app.engines import find_standby
from everkept.core.times import format_iso
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import USER_STORE, Act, Commit, SetNote
from everkept.settings import read_settings
from records import DAY_ONE, MILLISECOND, batch, memory

Run = Callable[..., Any]
LATER = DAY_ONE + 5_000 * MILLISECOND
NOBODY = "ws://127.0.0.1:1"  # where nothing listens
TEA = Commit(USER_STORE, batch(memory("Prefers tea")))
ESCAPE = Commit(USER_STORE, batch(memory("\x1b[2J gone")))


@pytest.fixture
def away(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands whose database is a server that cannot be reached."""
    monkeypatch.setenv("EVERKEPT_DATABASE_URL", NOBODY)
    return everkept


def kept(data: Path, *written: Act, aside: Sequence[int] = (), account: str | None = None) -> list[int]:
    """Their numbers; those at some places were set aside."""
    standby = find_standby(read_settings({"data_dir": data, "database_url": NOBODY, "config": "none"}, {}))
    assert standby is not None
    standby.folder.mkdir(parents=True)

    async def run() -> list[int]:
        journal = Journal(standby.journal, clock=lambda: LATER)
        numbers = [await journal.append(act, account=account) for act in written]
        for place in aside:
            await journal.reject(numbers[place], "Its project is gone.")
        await journal.close()
        return numbers

    return asyncio.run(run())


def test_where_nothing_waits_it_says_so_and_makes_nothing(away: Run, tmp_path: Path) -> None:
    shown = away("journal")
    assert (shown.status, shown.out) == (0, "0 pending writes, 0 rejected.\n")
    assert away("journal", "--json").json == {"writes": []}
    assert not (tmp_path / "data").exists()


def test_what_waits_and_what_is_set_aside_is_shown(away: Run, tmp_path: Path) -> None:
    first, second = kept(tmp_path / "data", TEA, SetNote("colour", "red"), aside=[1])
    shown = away("journal")
    assert "Prefers tea" in shown.out
    assert "set note colour" in shown.out
    assert f"rejected {format_iso(LATER)}: Its project is gone." in shown.out
    assert "1 pending write, 1 rejected." in shown.out
    assert "--retry NUMBER" in shown.err
    told = away("journal", "--json").json["writes"]
    assert [each["number"] for each in told] == [second, first]
    assert told[0] == {
        "number": second,
        "what": "set note colour",
        "reason": told[0]["reason"],
        "set_aside_at": format_iso(LATER),
    }
    assert told[1]["content"] == "Prefers tea"
    assert told[1]["store"] == "user"
    assert told[1]["at"] == format_iso(DAY_ONE)


def test_what_is_stored_does_not_steer_the_terminal(away: Run, tmp_path: Path) -> None:
    kept(tmp_path / "data", ESCAPE, ESCAPE, aside=[1])
    assert "\x1b" not in away("journal").out
    asked = away("journal", "--discard", "2", stdin="n\n", terminal=True)
    assert "\x1b" not in asked.out + asked.err


def test_a_write_that_was_set_aside_is_tried_again(away: Run, tmp_path: Path) -> None:
    first, second = kept(tmp_path / "data", TEA, SetNote("colour", "red"), aside=[0])
    shown = away("journal", "--retry", str(first))
    assert shown.status == 0
    assert f"Write {first} is pending again as number {second + 1}." in shown.out
    told = away("journal", "--json").json["writes"]
    assert [(each["number"], each.get("reason")) for each in told] == [(second, None), (second + 1, None)]


def test_all_that_were_set_aside_are_tried_again_in_their_order(away: Run, tmp_path: Path) -> None:
    assert away("journal", "--retry", "all").out == "0 writes are pending again.\n"
    notes = [SetNote(key, "") for key in "abc"]
    first, second, third = kept(tmp_path / "data", *notes, aside=[1, 0])
    answer = away("journal", "--retry", "all", "--json").json
    assert answer == {"writes": [{"write": first, "waits_as": third + 1}, {"write": second, "waits_as": third + 2}]}
    told = away("journal", "--json").json["writes"]
    assert [each["what"] for each in told] == ["set note c", "set note a", "set note b"]
    assert away("journal", "--retry", "all").out == "0 writes are pending again.\n"


def test_a_decision_speaks_json_too(away: Run, tmp_path: Path) -> None:
    first, second = kept(tmp_path / "data", TEA, TEA, aside=[0, 1])
    answer = away("journal", "--retry", str(first), "--json").json
    assert answer == {"write": first, "waits_as": second + 1}
    answer = away("journal", "--discard", str(second), "--yes", "--json").json
    assert answer == {"write": second, "discarded": True}


def test_a_write_is_given_up_for_good_only_when_somebody_says_so(away: Run, tmp_path: Path) -> None:
    [number] = kept(tmp_path / "data", TEA, aside=[0])
    asked = away("journal", "--discard", str(number))
    assert asked.status == 2
    assert "--yes" in asked.err
    refused = away("journal", "--discard", str(number), stdin="n\n", terminal=True)
    assert "Prefers tea" in refused.err
    assert refused.out == f"Kept write {number}.\n"
    assert len(away("journal", "--json").json["writes"]) == 1
    agreed = away("journal", "--discard", str(number), stdin="y\n", terminal=True)
    assert agreed.out == f"Discarded write {number}.\n"
    assert away("journal", "--json").json["writes"] == []


def test_all_that_were_set_aside_are_given_up_and_what_waits_is_not(away: Run, tmp_path: Path) -> None:
    assert away("journal", "--discard", "all").out == "Discarded 0 writes.\n"
    first, second, third = kept(tmp_path / "data", TEA, TEA, TEA, aside=[0, 2])
    refused = away("journal", "--discard", "all", stdin="n\n", terminal=True)
    assert refused.out == "Kept 2 writes.\n"
    answer = away("journal", "--discard", "all", "--yes", "--json").json
    assert answer == {"discarded": [first, third]}
    assert [each["number"] for each in away("journal", "--json").json["writes"]] == [second]


@pytest.mark.parametrize("option", ["--retry", "--discard"])
def test_only_what_is_set_aside_can_be_decided_on(away: Run, tmp_path: Path, option: str) -> None:
    nothing = away("journal", option, "1", "--json")
    assert (nothing.status, nothing.json["error"]) == (2, "not_found")
    [number] = kept(tmp_path / "data", TEA)
    for wrong in (number, number + 1):
        refused = away("journal", option, str(wrong), "--json")
        assert (refused.status, refused.json["error"]) == (2, "not_found")
    assert len(away("journal", "--json").json["writes"]) == 1


@pytest.mark.parametrize("options", [(), ("--engine", "surreal"), ("--retry", "1")])
def test_what_cannot_be_away_has_no_journal(everkept: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    refused = everkept("journal", *options, "--json")
    assert (refused.status, refused.json["error"]) == (2, "refused")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "options", [("--retry", "1", "--discard", "1"), ("--retry", "one"), ("--discard", "one"), ("--project", "shop")]
)
def test_mistakes_are_refused(away: Run, options: tuple[str, ...]) -> None:
    assert away("journal", *options).status == 2


def test_where_only_reading_is_allowed_nothing_is_decided(
    away: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [number] = kept(tmp_path / "data", TEA, aside=[0])
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    for option in ("--retry", "--discard"):
        assert away("journal", option, str(number), "--yes", "--json").json["error"] == "read_only"
    assert len(away("journal", "--json").json["writes"]) == 1


def test_what_a_command_stores_while_the_server_is_away_waits(away: Run) -> None:
    assert away("remember", "Prefers tea", "--scope", "user").status == 0
    told = away("journal", "--json").json["writes"]
    assert "Prefers tea" in {each.get("content") for each in told}


def test_who_wrote_it_is_shown_and_nothing_of_what_an_account_wrote(away: Run, tmp_path: Path) -> None:
    kept(tmp_path / "data", TEA, account="anna", aside=[0])
    for shown in (away("journal"), away("journal", "--json")):
        assert "Prefers tea" not in shown.out
        assert "anna" in shown.out
    assert " in user by anna\n" in away("journal").out
