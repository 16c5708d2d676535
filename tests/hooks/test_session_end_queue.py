import json
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.session_end import (
    FAILED_FOLDER,
    FAILED_JOB_SECONDS,
    JOBS_FOLDER,
    MAX_FAILED_JOBS,
    MAX_PENDING_JOBS,
    STALE_DRAFT_SECONDS,
    JobQueue,
    SessionJob,
)
from everkept.values import replace

DAY = 86_400


@pytest.fixture
def jobs(tmp_path: Path) -> JobQueue:
    return JobQueue(tmp_path / "data" / "hooks")


def job(session: str = "one", at: int = 1, **more: object) -> SessionJob:
    return replace(SessionJob("SessionEnd", session, at, "/t.jsonl", "claude-code", "/work"), **more)  # type: ignore[arg-type]


def waiting(jobs: JobQueue) -> list[SessionJob]:
    found = [jobs.read_job(name) for name in jobs.list_names()]
    return [replace(each, name="") for each in found if each is not None]


def test_jobs_wait_in_the_order_in_which_they_came(jobs: JobQueue) -> None:
    assert jobs.list_names() == []
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
    jobs = JobQueue(tmp_path_factory.mktemp("hooks"))
    wanted = SessionJob("PreCompact", session, 1, transcript, None, folder, wishes)
    jobs.add(wanted)
    assert waiting(jobs) == [wanted]


def test_a_path_that_is_no_text_comes_back_too(jobs: JobQueue) -> None:
    odd = os.fsdecode(b"/caf\xe9.jsonl") if sys.platform != "win32" else "/caf\udce9.jsonl"
    jobs.add(job(transcript=odd))
    assert waiting(jobs) == [job(transcript=odd)]


def test_two_jobs_of_one_session_do_not_replace_each_other(jobs: JobQueue) -> None:
    jobs.add(job(event="PreCompact"))
    jobs.add(job(event="SessionEnd"))
    assert {each.event for each in waiting(jobs)} == {"PreCompact", "SessionEnd"}


def test_what_is_done_is_gone_and_what_came_meanwhile_stays(jobs: JobQueue) -> None:
    jobs.add(job())
    [name] = jobs.list_names()
    taken = jobs.read_job(name)
    assert taken is not None
    jobs.add(job(at=2))
    jobs.save(replace(taken, starts=1, reached=100))
    assert waiting(jobs) == [job(starts=1, reached=100), job(at=2)]
    jobs.remove(taken)
    jobs.remove(taken)
    assert waiting(jobs) == [job(at=2)]
    assert jobs.read_job(name) is None


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", "{}", '{"event": 1}', '{"event": "SessionEnd", "session": "x"}']
)
def test_what_is_no_job_is_put_aside(jobs: JobQueue, damage: str, tmp_path: Path) -> None:
    jobs.add(job())
    [name] = jobs.list_names()
    (tmp_path / "data" / "hooks" / JOBS_FOLDER / name).write_text(damage, encoding="utf-8")
    assert jobs.read_job(name) is None
    assert jobs.list_names() == []
    assert len(jobs.list_failed()) == 1


def test_what_is_given_up_keeps_its_reason(jobs: JobQueue) -> None:
    jobs.add(job())
    taken = jobs.read_job(jobs.list_names()[0])
    assert taken is not None
    jobs.reject(taken, "the disk is full")
    assert jobs.list_names() == []
    [aside] = jobs.list_failed()
    assert aside["reason"] == "the disk is full"
    assert aside["session"] == "one"


def test_only_so_many_wait(jobs: JobQueue) -> None:
    dropped = [jobs.add(job(at=at)) for at in range(MAX_PENDING_JOBS + 5)]
    assert dropped == [0] * MAX_PENDING_JOBS + [1] * 5
    names = jobs.list_names()
    assert len(names) == MAX_PENDING_JOBS
    first = jobs.read_job(names[0])
    assert first is not None
    assert first.at == 5


def test_only_so_many_are_kept_aside_and_not_for_ever(jobs: JobQueue, tmp_path: Path) -> None:
    for at in range(MAX_FAILED_JOBS + 3):
        jobs.add(job(at=at))
        taken = jobs.read_job(jobs.list_names()[0])
        assert taken is not None
        jobs.reject(taken, "no luck")
    jobs.prune()
    kept = jobs.list_failed()
    assert [each["at"] for each in kept] == list(range(3, MAX_FAILED_JOBS + 3))
    old = time.time() - FAILED_JOB_SECONDS - DAY
    for path in (tmp_path / "data" / "hooks" / FAILED_FOLDER).iterdir():
        os.utime(path, (old, old))
    jobs.prune()
    assert jobs.list_failed() == []


def test_what_a_dead_process_never_finished_is_swept_away(jobs: JobQueue, tmp_path: Path) -> None:
    jobs.add(job())
    folder = tmp_path / "data" / "hooks" / JOBS_FOLDER
    left, fresh = folder / "1-a.json.99.tmp", folder / "2-b.json.98.tmp"
    for path in (left, fresh):
        path.write_text("{", encoding="utf-8")
    old = time.time() - STALE_DRAFT_SECONDS - DAY
    os.utime(left, (old, old))
    assert waiting(jobs) == [job()]
    jobs.prune()
    assert not left.exists()
    assert fresh.exists()
    assert waiting(jobs) == [job()]


def test_a_job_is_small_and_plain(jobs: JobQueue, tmp_path: Path) -> None:
    jobs.add(job())
    content = (tmp_path / "data" / "hooks" / JOBS_FOLDER / jobs.list_names()[0]).read_bytes()
    assert len(content) < 1_000
    assert json.loads(content)["session"] == "one"


def test_what_was_given_up_can_be_tried_again_and_what_is_no_job_goes(jobs: JobQueue, tmp_path: Path) -> None:
    jobs.add(job(failures=3, starts=7, reached=90))
    taken = jobs.read_job(jobs.list_names()[0])
    assert taken is not None
    jobs.reject(taken, "no luck")
    aside = tmp_path / "data" / "hooks" / FAILED_FOLDER
    for number, rubbish in enumerate(("{", "[]", '{"event": "SessionEnd", "session": 5}')):
        (aside / f"{number}.json").write_text(rubbish, encoding="utf-8")
    assert len(jobs.list_failed()) == 4
    assert jobs.retry_failed() == (1, 3)
    assert waiting(jobs) == [job()]
    assert jobs.list_failed() == []


def test_one_that_waits_for_long_is_known(jobs: JobQueue, tmp_path: Path) -> None:
    jobs.add(job(at=1))
    jobs.add(job(at=2))
    first, _ = jobs.list_names()
    os.utime(tmp_path / "data" / "hooks" / JOBS_FOLDER / first, (0, 0))
    assert jobs.list_older_than(DAY) == [first]


def test_what_is_no_job_can_be_told_without_a_change(jobs: JobQueue, tmp_path: Path) -> None:
    jobs.add(job())
    place = tmp_path / "data" / "hooks" / JOBS_FOLDER
    (place / "x.json").write_text("rubbish", encoding="utf-8")
    (place / "y.json").mkdir()
    assert [path.name for path in jobs.list_unreadable()] == ["x.json", "y.json"]
    assert len(jobs.list_names()) == 3
    assert jobs.read_job("y.json") is None
    assert jobs.read_job("nothing.json") is None
