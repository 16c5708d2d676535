"""Scheduled backups: the worker writes them, woken by a hook or by a server that runs for days."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from data_folders import everything, filled, restored
from everkept.care.backup_schedule import BackupSchedule, read_schedule, save_schedule
from everkept.settings import Settings, read_settings
from hook_workers import NAP, hooked, wait_for_workers, workers
from server_processes import HANG, environment

# A server for which ten minutes pass quickly.
SERVER = """
import sys
from everkept.cli import stdio_start
stdio_start.BACKUP_CHECK_SECONDS = 0.05
from everkept.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    filled(tmp_path / "data", "shop")
    (tmp_path / "copies").mkdir()
    settings = read_settings({"data_dir": tmp_path / "data"}, {"EVERKEPT_CONFIG": "none"})
    save_schedule(settings, BackupSchedule("daily", 2, str(tmp_path / "copies")))
    yield settings
    left = workers(tmp_path / "data")
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=HANG)


def list_copies(settings: Settings) -> list[Path]:
    return [*(settings.data_dir.parent / "copies").glob("*.zip")]


def test_a_session_that_starts_wakes_the_worker_for_a_backup_that_is_due(settings: Settings, tmp_path: Path) -> None:
    told = {"session_id": "one", "cwd": str(tmp_path), "source": "startup"}
    for _ in range(2):  # the second session finds nothing due
        hooked("SessionStart", settings.data_dir, tmp_path / "home", told)
        wait_for_workers(settings.data_dir)
    [copy] = list_copies(settings)
    restored(tmp_path / "elsewhere", copy)
    before, after = everything(settings.data_dir), everything(tmp_path / "elsewhere")
    assert after["stores"] == before["stores"]


def test_a_server_wakes_the_worker_without_hooks(settings: Settings, tmp_path: Path) -> None:
    arguments = ["serve", "--data-dir", str(settings.data_dir)]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    try:
        deadline = time.monotonic() + HANG
        while not list_copies(settings):
            assert time.monotonic() < deadline
            psutil.wait_procs(workers(settings.data_dir), timeout=NAP)
    finally:
        server.communicate(timeout=HANG)
    wait_for_workers(settings.data_dir)
    schedule = read_schedule(settings)
    assert schedule is not None
    assert (len(schedule.files), schedule.problem) == (1, "")
