import subprocess
import sys
from pathlib import Path

import pytest

from everkept.core.locks import IS_INHERITED, FileLock
from everkept.hooks.session_end import JobQueue, SessionJob, get_lock_path, get_start_turn, wake_worker
from everkept.hooks.workspace import get_hooks_folder
from everkept.settings import Settings, read_settings
from everkept.values import replace
from hook_workers import at_home, wait_for_workers
from server_processes import HANG

WAKE = """
import sys
from everkept.hooks.session_end import wake_worker
from everkept.settings import read_settings
settings = read_settings({"data_dir": sys.argv[1]})
is_woken = wake_worker(settings)
print(is_woken, [name for name in ("asyncio", "apsw", "logging") if name in sys.modules])
"""
HEAVY = """
import sys
from everkept.hooks.session_end import wake_worker
from everkept.settings import read_settings
before = set(sys.modules)
wake_worker(read_settings({"data_dir": sys.argv[1]}))
print(sorted({"subprocess", "selectors", "signal"} & (set(sys.modules) - before)))
"""

AT_ONCE = 50
MANY = f"""
import sys
from threading import Barrier, Thread
from everkept.hooks import session_end
from everkept.settings import read_settings
settings = read_settings({{"data_dir": sys.argv[1]}})
session_end.IS_INHERITED = sys.argv[2] == "True"
ready, said = Barrier({AT_ONCE}), []
def come():
    ready.wait()
    said.append(session_end.wake_worker(settings))
threads = [Thread(target=come) for _ in range({AT_ONCE})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(said.count(True), said.count(False))
"""
WITH_VARIABLES = """
import os, sys
from everkept.hooks.session_end import wake_worker
from everkept.settings import read_settings
os.environ |= {"PYTHONPATH": sys.argv[2], "PYTHONSTARTUP": sys.argv[2], "PYTHONHOME": sys.argv[2]}
print(wake_worker(read_settings({"data_dir": sys.argv[1]})))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"data_dir": tmp_path / "data"}, {"EVERKEPT_CONFIG": "none"})


def add(settings: Settings) -> None:
    JobQueue(get_hooks_folder(settings)).add(SessionJob("SessionEnd", "one", 1))


def program(code: str, settings: Settings, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, str(settings.data_dir), *arguments],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env=at_home(settings.data_dir.parent / "home"),
        timeout=HANG,
    ).stdout.strip()


def test_where_nothing_waits_nothing_is_made_and_nothing_is_loaded(settings: Settings) -> None:
    assert program(HEAVY, settings) == "[]"
    assert not settings.data_dir.exists()


def test_where_something_waits_a_worker_comes_and_goes(settings: Settings) -> None:
    add(settings)
    assert program(WAKE, settings) == "True []"
    wait_for_workers(settings.data_dir)
    assert JobQueue(get_hooks_folder(settings)).list_names() == []
    assert program(WAKE, settings) == "False []"


def test_nobody_is_started_while_another_one_is_at_work(settings: Settings) -> None:
    add(settings)
    lock = FileLock(get_lock_path(settings))
    assert lock.take()
    assert not wake_worker(settings)
    lock.release()


def test_a_worker_that_cannot_be_started_leaves_the_lock_free(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(settings)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(OSError):
        wake_worker(settings)
    lock = FileLock(get_lock_path(settings))
    assert lock.take()
    lock.release()


@pytest.mark.parametrize("is_inherited", sorted({IS_INHERITED, False}))
def test_of_many_who_come_at_once_one_starts_a_worker(settings: Settings, is_inherited: bool) -> None:
    add(settings)
    assert program(MANY, settings, str(is_inherited)) == f"1 {AT_ONCE - 1}"
    wait_for_workers(settings.data_dir)
    assert JobQueue(get_hooks_folder(settings)).list_names() == []
    assert get_start_turn(settings).take()  # whoever comes next need not wait for it


def test_where_only_reading_is_allowed_nobody_is_started(settings: Settings) -> None:
    add(settings)
    assert not wake_worker(replace(settings, read_only=True))
    assert not get_lock_path(settings).exists()


def test_the_variables_of_another_python_do_not_reach_the_worker(settings: Settings, tmp_path: Path) -> None:
    add(settings)
    folder = tmp_path / "another"
    (folder / "everkept").mkdir(parents=True)
    (folder / "everkept" / "__init__.py").write_text("raise SystemExit", encoding="utf-8")
    assert program(WITH_VARIABLES, settings, str(folder)) == "True"
    wait_for_workers(settings.data_dir)
    assert JobQueue(get_hooks_folder(settings)).list_names() == []
