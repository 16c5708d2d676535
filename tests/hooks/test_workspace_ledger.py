import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.workspace import RETENTION_DAYS, SESSIONS_FOLDER, SessionLedger, prune_daily, prune_sessions
from processes import acting

SESSION = "0b7f-11"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hooks' own, in a data folder that is there."""
    return tmp_path / "hooks"


def files(folder: Path) -> list[Path]:
    return sorted((folder / SESSIONS_FOLDER).glob("*"))


def test_what_is_claimed_was_given_to_that_session_alone(folder: Path) -> None:
    assert SessionLedger(folder, SESSION).claim(["a", "b"]) == {"a", "b"}
    assert SessionLedger(folder, SESSION).read_given() == {"a", "b"}
    assert SessionLedger(folder, SESSION).claim(["b", "c"]) == {"c"}
    assert SessionLedger(folder, "other").read_given() == set()
    assert SessionLedger(folder, "other").claim(["a"]) == {"a"}


def test_reading_makes_nothing(folder: Path) -> None:
    ledger = SessionLedger(folder, SESSION)
    assert ledger.read_given() == set()
    assert ledger.claim([]) == set()
    ledger.reset()
    assert not folder.exists()


def test_after_a_reset_everything_may_be_given_again(folder: Path) -> None:
    ledger = SessionLedger(folder, SESSION)
    ledger.claim(["a", "b"])
    ledger.reset()
    assert ledger.read_given() == set()
    assert ledger.claim(["a"]) == {"a"}
    assert ledger.read_given() == {"a"}


def test_of_two_who_claim_at_once_each_thing_goes_to_one(folder: Path) -> None:
    wanted = [f"id {number}" for number in range(200)]
    with (
        acting("hook_actors:claim", folder, SESSION, wanted) as one,
        acting("hook_actors:claim", folder, SESSION, wanted) as two,
    ):
        ready = one.hear(), two.hear()
        one.tell()
        two.tell()
        claimed = one.hear(), two.hear()
    assert ready == ("ready", "ready")
    assert sorted([*claimed[0], *claimed[1]]) == sorted(wanted)
    assert SessionLedger(folder, SESSION).read_given() == set(wanted)


@pytest.mark.parametrize(("place", "session"), [("", ""), ("missing", SESSION)])
def test_without_a_session_or_a_data_folder_nothing_is_kept(tmp_path: Path, place: str, session: str) -> None:
    ledger = SessionLedger(tmp_path / place / "hooks", session)
    assert ledger.claim(["a"]) == {"a"}
    assert ledger.read_given() == set()
    ledger.reset()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rubbish", [b"\xff\xfe\x00 \x80", b"a\n\nb", b"half a li"])
def test_rubbish_in_the_file_is_passed_over(folder: Path, rubbish: bytes) -> None:
    ledger = SessionLedger(folder, SESSION)
    ledger.claim(["before"])
    [path] = files(folder)
    path.write_bytes(path.read_bytes() + rubbish)
    assert ledger.claim(["after", "before"]) == {"after"}
    assert {"before", "after"} <= SessionLedger(folder, SESSION).read_given()


@pytest.mark.parametrize("session", ["../../x", "a/b\\c", "CON", "x" * 500, "\ud800", "Ü", "a.b"])
def test_any_session_has_a_file_of_its_own_inside_the_folder(folder: Path, session: str) -> None:
    SessionLedger(folder, session).claim(["a"])
    [path] = files(folder)
    assert path.parent == folder / SESSIONS_FOLDER
    assert path.stem.isalnum()
    assert SessionLedger(folder, session).read_given() == {"a"}


def test_only_the_owner_can_read_it(folder: Path) -> None:
    SessionLedger(folder, SESSION).claim(["a"])
    if os.name == "posix":
        assert files(folder)[0].stat().st_mode & 0o777 == 0o600
        for place in (folder / SESSIONS_FOLDER, folder):
            assert place.stat().st_mode & 0o777 == 0o700


def test_old_ledgers_are_pruned(folder: Path) -> None:
    assert prune_sessions(folder, 0) == 0
    for session in ("old", "new"):
        SessionLedger(folder, session).claim(["a"])
    now = time.time()
    old = folder / SESSIONS_FOLDER / files(folder)[0].name
    os.utime(old, (now, now - RETENTION_DAYS * 86_400 - 60))
    assert prune_sessions(folder, int(now * 1e6)) == 1
    assert not old.exists()
    assert len(files(folder)) == 1


@given(st.lists(st.lists(st.sampled_from("abcdef"))))
def test_nothing_is_given_twice_however_it_is_claimed(
    tmp_path_factory: pytest.TempPathFactory, claims: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    given_out = [each for ids in claims for each in SessionLedger(folder, SESSION).claim(ids)]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {each for ids in claims for each in ids}


def test_old_ledgers_are_swept_away_once_a_day(folder: Path) -> None:
    now = int(time.time() * 1e6)
    prune_daily(folder, now)
    assert not folder.exists()
    old, older = SessionLedger(folder, "aaaa"), SessionLedger(folder, "bbbb")
    for ledger, path in ((old, "aaaa.txt"), (older, "bbbb.txt")):
        ledger.claim(["x"])
        os.utime(folder / SESSIONS_FOLDER / path, (0, 0))
        prune_daily(folder, now)
    assert (old.read_given(), older.read_given()) == (set(), {"x"})
    prune_daily(folder, now + 25 * 3_600 * 1_000_000)
    assert older.read_given() == set()
