"""Everkept leaves a machine: clients as they were, no process at work, and all data still there."""

import subprocess
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from everkept.hooks.session_end import JobQueue
from hook_workers import NAP, at_home, hooked, transcript, wait_for_workers, workers
from server_processes import HANG, command

SESSION = "11111111-2222-4333-8444-555555555555"
MANY = 1_500  # turns: enough for a worker to be asked in the middle


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    return home


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    left = workers(tmp_path / "data")
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=HANG)


def ran(home: Path, data: Path, *arguments: str) -> str:
    done = subprocess.run(
        command(*arguments, "--data-dir", data),
        capture_output=True,
        check=True,
        cwd=home,
        encoding="utf-8",
        env=at_home(home),
        stdin=subprocess.DEVNULL,
        timeout=HANG,
    )
    return done.stdout


@contextmanager
def held_workers(data: Path) -> Generator[ExitStack]:
    """Workers that stand still until the stack is closed, so that they do not finish before they are asked to stop."""
    with ExitStack() as held:
        for process in workers(data):
            process.suspend()
            held.callback(process.resume)
        yield held


def test_an_import_at_work_stops_and_a_later_one_finishes_it(home: Path, data: Path, tmp_path: Path) -> None:
    other = home / ".cursor" / "mcp.json"
    other.write_text('{"mcpServers": {"other": {"command": "other"}}}', encoding="utf-8")
    before = other.read_text(encoding="utf-8")
    ran(home, data, "setup", "cursor", "--yes")
    ran(home, data, "remember", "The teapot leaks at the handle")
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    path = transcript(home, SESSION, folder, MANY)
    event = {"session_id": SESSION, "cwd": str(folder), "reason": "other", "transcript_path": str(path)}
    hooked("SessionEnd", data, home, event)
    jobs = JobQueue(data / "hooks")
    [name] = jobs.list_names()
    while (job := jobs.read_job(name)) is not None and not job.reached:
        psutil.wait_procs(workers(data), timeout=NAP)
    with held_workers(data) as held, ThreadPoolExecutor(1) as thread:
        leaving = thread.submit(ran, home, data, "uninstall", "--yes")
        while not (data / "hooks" / "worker.stopping").exists():
            wait([leaving], timeout=NAP)
            assert not leaving.done()
        held.close()
        leaving.result()
    wait_for_workers(data)
    assert jobs.list_names() == [name]
    assert other.read_text(encoding="utf-8") == before
    assert "teapot" in ran(home, data, "recall", "what leaks")
    hooked("SessionEnd", data, home, {**event, "session_id": "another"})
    wait_for_workers(data)
    assert jobs.list_names() == []
