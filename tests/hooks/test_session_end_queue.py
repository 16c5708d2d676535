import json
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.session_end import (
    ASIDE,
    ASIDE_FOR,
    FOLDER,
    LEFT_OVER,
    MOST_ASIDE,
    MOST_WAITING,
    Job,
    Jobs,
)
from everkept.values import replace

DAY = 86_400


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "data" / "hooks")


def job(session: str = "one", at: int = 1, **more: object) -> Job:
    return replace(Job("SessionEnd", session, at, "/t.jsonl", "claude-code", "/work"), **more)  # type: ignore[arg-type]


def waiting(jobs: Jobs) -> list[Job]:
    found = [jobs.get(name) for name in jobs.names()]
    return [replace(each, name="") for each in found if each is not None]


def test_jobs_wait_in_the_order_in_which_they_came(jobs: Jobs) -> None:
    assert jobs.names() == []
    for at in (3, 20, 1_700_000_000_000_000):
        jobs.add(job(at=at))
    assert waiting(jobs) == [job(at=3), job(at=20), job(at=1_700_000_000_000_000)]


@given(
    session=st.text(),
    transcript=st.none() | st.text(),
    folder=st.none() | st.text(),
    wishes=st.dictionaries(st.text(), st.booleans() | st.text() | st.none()),
)
def test_a_job_comes_back_as_it_was(
    session: str,
    transcript: str | None,
    folder: str | None,
    wishes: dict[str, object],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    jobs = Jobs(tmp_path_factory.mktemp("hooks"))
    wanted = Job("PreCompact", session, 1, transcript, None, folder, wishes)
    jobs.add(wanted)
    assert waiting(jobs) == [wanted]


def test_a_path_that_is_no_text_comes_back_too(jobs: Jobs) -> None:
    odd = os.fsdecode(b"/caf\xe9.jsonl") if sys.platform != "win32" else "/caf\udce9.jsonl"
    jobs.add(job(transcript=odd))
    assert waiting(jobs) == [job(transcript=odd)]


def test_two_jobs_of_one_session_do_not_replace_each_other(jobs: Jobs) -> None:
    jobs.add(job(event="PreCompact"))
    jobs.add(job(event="SessionEnd"))
    assert {each.event for each in waiting(jobs)} == {"PreCompact", "SessionEnd"}


def test_what_is_done_is_gone_and_what_came_meanwhile_stays(jobs: Jobs) -> None:
    jobs.add(job())
    [name] = jobs.names()
    taken = jobs.get(name)
    assert taken is not None
    jobs.add(job(at=2))
    jobs.keep(replace(taken, starts=1, reached=100))
    assert waiting(jobs) == [job(starts=1, reached=100), job(at=2)]
    jobs.done(taken)
    jobs.done(taken)
    assert waiting(jobs) == [job(at=2)]
    assert jobs.get(name) is None


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", "{}", '{"event": 1}', '{"event": "SessionEnd", "session": "x"}'],
)
def test_what_is_no_job_is_put_aside(jobs: Jobs, damage: str, tmp_path: Path) -> None:
    jobs.add(job())
    [name] = jobs.names()
    (tmp_path / "data" / "hooks" / FOLDER / name).write_text(damage, encoding="utf-8")
    assert jobs.get(name) is None
    assert jobs.names() == []
    assert len(jobs.set_aside()) == 1


def test_what_is_given_up_keeps_its_reason(jobs: Jobs) -> None:
    jobs.add(job())
    taken = jobs.get(jobs.names()[0])
    assert taken is not None
    jobs.give_up(taken, "the disk is full")
    assert jobs.names() == []
    [aside] = jobs.set_aside()
    assert aside["reason"] == "the disk is full"
    assert aside["session"] == "one"


def test_only_so_many_wait(jobs: Jobs) -> None:
    dropped = [jobs.add(job(at=at)) for at in range(MOST_WAITING + 5)]
    assert dropped == [0] * MOST_WAITING + [1] * 5
    names = jobs.names()
    assert len(names) == MOST_WAITING
    first = jobs.get(names[0])
    assert first is not None
    assert first.at == 5


def test_only_so_many_are_kept_aside_and_not_for_ever(jobs: Jobs, tmp_path: Path) -> None:
    for at in range(MOST_ASIDE + 3):
        jobs.add(job(at=at))
        taken = jobs.get(jobs.names()[0])
        assert taken is not None
        jobs.give_up(taken, "no luck")
    jobs.prune()
    kept = jobs.set_aside()
    assert [each["at"] for each in kept] == list(range(3, MOST_ASIDE + 3))
    old = time.time() - ASIDE_FOR - DAY
    for path in (tmp_path / "data" / "hooks" / ASIDE).iterdir():
        os.utime(path, (old, old))
    jobs.prune()
    assert jobs.set_aside() == []


def test_what_a_dead_process_never_finished_is_swept_away(jobs: Jobs, tmp_path: Path) -> None:
    jobs.add(job())
    folder = tmp_path / "data" / "hooks" / FOLDER
    left, fresh = folder / "1-a.json.99.tmp", folder / "2-b.json.98.tmp"
    for path in (left, fresh):
        path.write_text("{", encoding="utf-8")
    old = time.time() - LEFT_OVER - DAY
    os.utime(left, (old, old))
    assert waiting(jobs) == [job()]
    jobs.prune()
    assert not left.exists()
    assert fresh.exists()
    assert waiting(jobs) == [job()]


def test_a_job_is_small_and_plain(jobs: Jobs, tmp_path: Path) -> None:
    jobs.add(job())
    content = (tmp_path / "data" / "hooks" / FOLDER / jobs.names()[0]).read_bytes()
    assert len(content) < 1_000
    assert json.loads(content)["session"] == "one"


def test_what_was_given_up_can_be_tried_again_and_what_is_no_job_goes(
    jobs: Jobs, tmp_path: Path
) -> None:
    jobs.add(job(failures=3, starts=7, reached=90))
    taken = jobs.get(jobs.names()[0])
    assert taken is not None
    jobs.give_up(taken, "no luck")
    aside = tmp_path / "data" / "hooks" / ASIDE
    for number, rubbish in enumerate(("{", "[]", '{"event": "SessionEnd", "session": 5}')):
        (aside / f"{number}.json").write_text(rubbish, encoding="utf-8")
    assert len(jobs.set_aside()) == 4
    assert jobs.try_again() == (1, 3)
    assert waiting(jobs) == [job()]
    assert jobs.set_aside() == []


def test_one_that_waits_for_long_is_known(jobs: Jobs, tmp_path: Path) -> None:
    jobs.add(job(at=1))
    jobs.add(job(at=2))
    first, _ = jobs.names()
    os.utime(tmp_path / "data" / "hooks" / FOLDER / first, (0, 0))
    assert jobs.waiting_for(DAY) == [first]


def test_what_is_no_job_can_be_told_without_a_change(jobs: Jobs, tmp_path: Path) -> None:
    jobs.add(job())
    place = tmp_path / "data" / "hooks" / FOLDER
    (place / "x.json").write_text("rubbish", encoding="utf-8")
    (place / "y.json").mkdir()
    assert [path.name for path in jobs.unreadable()] == ["x.json", "y.json"]
    assert len(jobs.names()) == 3
    assert jobs.get("y.json") is None
    assert jobs.get("nothing.json") is None
