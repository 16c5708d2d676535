import subprocess
import sys
from pathlib import Path

import pytest

from parting import at_home, wait_for_workers
from recollect.hooks.jobs import Job, Jobs
from recollect.hooks.locks import Lock
from recollect.hooks.places import hooks_folder
from recollect.hooks.waking import lock_path, wake
from recollect.settings import Settings, load
from serving import HANG

WAKE = """
import sys
from recollect.hooks.waking import wake
from recollect.settings import load
settings = load({"data_dir": sys.argv[1]})
print(wake(settings), [name for name in ("asyncio", "apsw", "logging") if name in sys.modules])
"""
HEAVY = """
import sys
from recollect.hooks.waking import wake
from recollect.settings import load
before = set(sys.modules)
wake(load({"data_dir": sys.argv[1]}))
print(sorted({"subprocess", "selectors", "signal"} & (set(sys.modules) - before)))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"data_dir": tmp_path / "data"}, {"RECOLLECT_CONFIG": "none"})


def add(settings: Settings) -> None:
    Jobs(hooks_folder(settings)).add(Job("SessionEnd", "one", 1))


def program(code: str, settings: Settings) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, str(settings.data_dir)],
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
    assert Jobs(hooks_folder(settings)).names() == []
    assert program(WAKE, settings) == "False []"


def test_nobody_is_started_while_another_one_is_at_work(settings: Settings) -> None:
    add(settings)
    lock = Lock(lock_path(settings))
    assert lock.take()
    assert not wake(settings)
    lock.release()


def test_a_worker_that_cannot_be_started_leaves_the_lock_free(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(settings)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(OSError):
        wake(settings)
    lock = Lock(lock_path(settings))
    assert lock.take()
    lock.release()
