import os
import subprocess
import sys
from pathlib import Path

import pytest

from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes
from everkept.cli.care import check_hooks
from everkept.core.locks import FileLock
from everkept.core.times import read_clock
from everkept.hooks.session_end import JobQueue, SessionJob
from everkept.hooks.workspace import SessionLedger, record_fault
from everkept.settings import read_settings
from everkept.values import replace
from hook_workers import at_home, wait_for_workers
from server_processes import HANG

LONG_AGO = (1_000_000, 1_000_000)
MEND = """
import sys
from everkept.care.check_context import CheckContext, apply_fixes
from everkept.core.times import read_clock
from everkept.cli.care import check_hooks
from everkept.settings import read_settings
done = apply_fixes(check_hooks(CheckContext(read_settings({"data_dir": sys.argv[1]}), read_clock)))
sys.exit(not (done and all(each.is_done for each in done)))
"""


@pytest.fixture
def context(tmp_path: Path) -> CheckContext:
    return CheckContext(read_settings({"data_dir": tmp_path / "data", "config": "none"}, {}), read_clock)


@pytest.fixture
def folder(context: CheckContext) -> Path:
    """Of the hooks."""
    path = context.folder / "hooks"
    path.mkdir(parents=True, mode=0o700)
    return path


def worst(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_hooks(context) if finding.severity != "ok"]


def job(session: str) -> SessionJob:
    return SessionJob("SessionEnd", session, read_clock(), transcript=None, folder=None)


def mend_in_another_process(context: CheckContext) -> None:
    """As a command does: it ends before the one that it has started, which this waits for."""
    subprocess.run(
        [sys.executable, "-c", MEND, str(context.folder)],
        check=True,
        env=at_home(context.folder.parent / "home"),
        timeout=HANG,
    )
    wait_for_workers(context.folder)


def test_hooks_that_left_nothing_are_well(context: CheckContext, folder: Path) -> None:
    assert worst(context) == []
    folder.rmdir()
    assert worst(context) == []
    assert not folder.exists()


def test_hooks_that_are_switched_off_are_not_looked_at(context: CheckContext, folder: Path) -> None:
    record_fault(folder, "SessionStart", "it went wrong")
    off = replace(context, settings=replace(context.settings, hooks=False))
    assert worst(off) == []


def test_the_newest_fault_is_told_for_a_week(context: CheckContext, folder: Path) -> None:
    record_fault(folder, "SessionStart", "the first reason")
    record_fault(folder, "UserPromptSubmit", "the second reason")
    [finding] = worst(context)
    assert finding.severity == "advice"
    assert "2 faults" in finding.what
    assert "UserPromptSubmit: the second reason" in finding.what
    later = replace(context, clock=lambda: read_clock() + 8 * 86_400 * 1_000_000)
    assert worst(later) == []


def test_what_waits_for_long_while_nobody_is_at_it_is_taken_up(context: CheckContext, folder: Path) -> None:
    jobs = JobQueue(folder)
    jobs.add(job("one"))
    assert worst(context) == []  # somebody may just be starting
    [name] = jobs.list_names()
    os.utime(folder / "jobs" / name, LONG_AGO)
    lock = FileLock(folder / "worker.lock")
    assert lock.take()
    assert worst(context) == []  # somebody is at it
    lock.release()
    [finding] = worst(context)
    assert "1 session" in finding.what
    mend_in_another_process(context)
    assert jobs.list_names() == []
    assert worst(context) == []


def test_what_failed_gets_another_try(context: CheckContext, folder: Path) -> None:
    jobs = JobQueue(folder)
    jobs.add(job("one"))
    [name] = jobs.list_names()
    found = jobs.read_job(name)
    assert found is not None
    jobs.reject(replace(found, failures=3), "the transcript was locked")
    (folder / "failed" / "0.json").write_text("{", encoding="utf-8")
    [finding] = worst(context)
    assert "2 sessions" in finding.what
    assert "the transcript was locked" in finding.what
    assert finding.mend is not None
    mend_in_another_process(context)
    assert [*(folder / "failed").iterdir()] == []
    assert worst(context) == []


def test_ledgers_of_long_ago_go(context: CheckContext, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everkept.cli.care.MAX_OLD_LEDGERS", 1)
    for session in ("one", "two", "three"):
        SessionLedger(folder, session).claim(["x"])
    assert worst(context) == []
    old = sorted((folder / "sessions").iterdir())[:2]
    for path in old:
        os.utime(path, LONG_AGO)
    [finding] = worst(context)
    [done] = apply_fixes([finding])
    assert done.did == "removed 2"
    assert worst(context) == []


def test_what_is_no_job_is_told_at_once_and_removed(context: CheckContext, folder: Path) -> None:
    jobs = JobQueue(folder)
    jobs.add(job("one"))
    [name] = jobs.list_names()
    (folder / "jobs" / "x.json").write_text("rubbish", encoding="utf-8")
    (folder / "jobs" / f"0{name}").write_bytes(b"\xff\x00")
    [finding] = worst(context)
    assert "2 files" in finding.what
    assert "x.json" in finding.what
    [done] = apply_fixes([finding])
    assert done.did == "removed 2 files"
    assert jobs.list_names() == [name]
    assert worst(context) == []
