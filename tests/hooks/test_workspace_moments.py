from pathlib import Path

import pytest

from everkept.hooks.workspace import MOMENT_MICROSECONDS, SessionMoments

NOW = 1_800_000_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "hooks"


def test_of_two_hooks_for_one_moment_the_first_one_answers(folder: Path) -> None:
    first, second = SessionMoments(folder, "s"), SessionMoments(folder, "s")
    assert first.claim("a", NOW)
    assert not second.claim("a", NOW + 1)
    assert SessionMoments(folder, "s").claim("b", NOW + 2)
    assert SessionMoments(folder, "other").claim("a", NOW + 3)


def test_a_later_moment_is_another_one_even_after_lost_claims(folder: Path) -> None:
    later = NOW + MOMENT_MICROSECONDS
    assert SessionMoments(folder, "s").claim("a", NOW)
    assert not SessionMoments(folder, "s").claim("a", later - 1)
    assert SessionMoments(folder, "s").claim("a", later)


def test_a_long_session_still_tells_moments_apart(folder: Path) -> None:
    for number in range(400):
        assert SessionMoments(folder, "s").claim(f"{number:032}", NOW)
    assert not SessionMoments(folder, "s").claim(f"{399:032}", NOW + 1)


@pytest.mark.parametrize("session", ["", "s"])
def test_without_a_session_or_data_nothing_is_written(tmp_path: Path, session: str) -> None:
    folder = (tmp_path if session == "" else tmp_path / "none") / "hooks"
    for _ in range(2):
        assert SessionMoments(folder, session).claim("a", NOW)
    assert not folder.exists()
