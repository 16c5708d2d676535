"""Sessions that end: hooks leave a job behind, and one process takes all in, exactly once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from everkept.app.app import App
from everkept.core.locks import FileLock
from everkept.core.records import RecordFilter
from everkept.core.sessions import Session
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.hooks.entry import FINISH_SECONDS
from everkept.hooks.session_end import JobQueue, SessionJob, get_lock_path
from everkept.hooks.worker import MAX_MEMORY_BYTES
from everkept.hooks.workspace import read_recent_faults
from everkept.settings import read_settings
from hook_workers import NAP, at_home, hook, hooked, past, transcript, wait_for_workers, workers
from server_processes import HANG, command, stdio_server

SESSION = "11111111-2222-4333-8444-555555555555"
MANY = 1_500  # turns: enough for a worker to be killed in the middle
AT_ONCE = 20
LIMITED = """
import sys
from everkept.hooks.worker import main
from everkept.settings import read_settings
settings = read_settings({"data_dir": sys.argv[1]})
main(settings, time_limit=float(sys.argv[2]), grace=float(sys.argv[3]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shop"
    (made / ".git").mkdir(parents=True)
    return made


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    left = workers(tmp_path / "data")
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=HANG)


def told(path: Path | None, folder: Path, session: str = SESSION) -> dict[str, str]:
    given = {"session_id": session, "cwd": str(folder), "reason": "other"}
    return given if path is None else given | {"transcript_path": str(path)}


def at_work(data: Path) -> list[psutil.Process]:
    """Those workers that have the lock's file; one that is just going has let go of it."""
    lock, found = str(get_lock_path(read_settings({"data_dir": data}))), []
    for process in workers(data):
        with suppress(psutil.Error):
            if any(file.path == lock for file in process.open_files()):
                found.append(process)
    return found


def waiting(data: Path) -> list[str]:
    return JobQueue(data / "hooks").list_names()


def reached(data: Path, name: str) -> int:
    """How far the transcript of a job is taken in."""
    job = JobQueue(data / "hooks").read_job(name)
    return 0 if job is None else job.reached


def imported_whole(home: Path, data: Path) -> None:
    subprocess.run(
        command("import", "history", "--data-dir", data),
        check=True,
        capture_output=True,
        env=at_home(home),
        timeout=2 * HANG,
    )


async def remember(data: Path, folder: Path, content: str) -> None:
    flags = {"data_dir": data, "path": folder, "embedding_model": "none"}
    app = App(read_settings(flags, {"EVERKEPT_CONFIG": "none"}))
    given = {"content": content, "type": "episodic", "scope": "session", "session_id": SESSION}
    await app.call(Session(), "store_memory", given)
    await app.close()


async def summary(data: Path, project: str) -> str:
    library = SqliteLibrary(data)
    _, store = await library.open(project)
    [session] = await store.get([SESSION])
    await library.close()
    return session.text


async def test_what_was_said_is_recalled_after_the_session_and_it_has_a_summary(
    home: Path, data: Path, folder: Path
) -> None:
    path = transcript(home, SESSION, folder, 6)
    before = path.read_bytes()
    await remember(data, folder, "The teapot leaks at the handle")
    assert hooked("SessionEnd", data, home, told(path, folder)) == ""
    wait_for_workers(data)
    assert waiting(data) == []
    assert path.read_bytes() == before
    assert "teapot" in await summary(data, folder.name)
    with stdio_server(data) as server:
        found = server.call("recall_previous_discussions", query="the queue of the shop")["results"]
        assert "Turn" in found[0]["content"]
        assert found[0]["context"]["project_path"] == str(folder)


async def test_a_session_that_loses_its_context_is_taken_in_and_goes_on(home: Path, data: Path, folder: Path) -> None:
    path = transcript(home, SESSION, folder, 3)
    assert hooked("PreCompact", data, home, told(path, folder)) == ""
    wait_for_workers(data)
    first = await past(data)
    transcript(home, SESSION, folder, 5)
    assert hooked("SessionEnd", data, home, told(path, folder)) == ""
    wait_for_workers(data)
    assert len([kept for kept in first.values() if kept[0] == "turn"]) == 3
    imported_whole(home, data.with_name("whole"))
    assert await past(data) == await past(data.with_name("whole"))


async def test_sessions_that_end_at_once_keep_one_process_busy(home: Path, data: Path, folder: Path) -> None:
    sessions = [f"session-{number}" for number in range(AT_ONCE)]
    paths = {each: transcript(home, each, folder, 4) for each in sessions}
    hooks = [hook("SessionEnd", data, home, told(paths[each], folder, each)) for each in sessions]
    most = 0
    while any(process.poll() is None for process in hooks) or workers(data):
        most = max(most, len(at_work(data)))
        psutil.wait_procs(workers(data), timeout=NAP)
    for process in hooks:
        out, err = process.communicate(timeout=HANG)
        assert (process.returncode, out, err) == (0, "", "")
    wait_for_workers(data)
    assert most == 1
    assert waiting(data) == []
    taken = {kept[5] for kept in (await past(data)).values() if kept[0] == "turn"}
    late = [fault for fault in read_recent_faults(data / "hooks", AT_ONCE) if "longer than" in fault.reason]
    left = [each for each in sessions if each not in taken]
    assert len(left) <= len(late)  # a machine that has too much to do cuts hooks off, and says so
    for each in left:
        hooked("SessionEnd", data, home, told(paths[each], folder, each))
    wait_for_workers(data)
    imported_whole(home, data.with_name("whole"))
    taken = await past(data)
    assert len([kept for kept in taken.values() if kept[0] == "turn"]) == 4 * AT_ONCE
    assert taken == await past(data.with_name("whole"))


SLOW_SETTINGS = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "everkept.settings":
            time.sleep({seconds})

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.thorough
def test_a_hook_that_is_cut_off_says_so_even_if_its_log_takes_long_to_find(
    home: Path, data: Path, folder: Path, tmp_path: Path
) -> None:
    """As on a busy machine. The assistant never finishes its input."""
    data.mkdir()
    (tmp_path / "sitecustomize.py").write_text(SLOW_SETTINGS.format(seconds=2 * FINISH_SECONDS), encoding="utf-8")
    process = subprocess.Popen(
        command("hook", "SessionEnd", "--data-dir", data),
        env=at_home(home) | {"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.wait(HANG) == 0
    [fault] = read_recent_faults(data / "hooks")
    assert (fault.event, fault.reason) == ("SessionEnd", "it took longer than 10.0 s")


async def test_a_worker_that_is_killed_again_and_again_ends_as_if_it_never_was(
    home: Path, data: Path, folder: Path
) -> None:
    path = transcript(home, SESSION, folder, MANY)
    imported_whole(home, data.with_name("whole"))
    hooked("SessionEnd", data, home, told(path, folder))
    [job] = waiting(data)
    kills = 0
    while job in waiting(data):
        while job in waiting(data) and not workers(data):
            pass  # its process is still starting
        seen = reached(data, job)
        while job in waiting(data) and reached(data, job) == seen and workers(data):
            psutil.wait_procs(workers(data), timeout=NAP)
        for process in workers(data):
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            kills += 1
        wait_for_workers(data)
        # Whoever ends next wakes another one, which goes on where the last one was killed.
        hooked("SessionEnd", data, home, told(None, folder, "another"))
    wait_for_workers(data)
    assert kills > 1
    assert JobQueue(data / "hooks").list_failed() == []
    assert await past(data) == await past(data.with_name("whole"))


async def test_a_worker_keeps_to_its_time_and_the_next_one_goes_on(home: Path, data: Path, folder: Path) -> None:
    path = transcript(home, SESSION, folder, MANY)
    hooked("SessionEnd", data, home, told(path, folder), EVERKEPT_READ_ONLY="true")
    assert waiting(data) == []
    hooked("PreCompact", data, home, told(path, folder))
    for process in workers(data):
        process.kill()
    wait_for_workers(data)
    assert len(waiting(data)) == 1
    assert limited(home, data, 0.5, HANG) == 0
    assert len(waiting(data)) == 1
    assert limited(home, data, HANG, HANG) == 0
    assert waiting(data) == []
    imported_whole(home, data.with_name("whole"))
    assert await past(data) == await past(data.with_name("whole"))


def test_a_worker_that_does_not_end_in_time_is_ended(home: Path, data: Path) -> None:
    jobs = JobQueue(data / "hooks")
    jobs.add(SessionJob("SessionEnd", SESSION, 1))
    # To load what it works with takes longer, and nothing can call that off. Whoever ends it does
    # not wait for the interpreter, so that it may also be ended in the middle of something.
    assert limited(home, data, 0.01, 0.01) != 0
    assert len(jobs.list_names()) == 1
    lock = FileLock(get_lock_path(read_settings({"data_dir": data})))
    assert lock.take()
    lock.release()


def limited(home: Path, data: Path, seconds: float, grace: float) -> int:
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(data), str(seconds), str(grace)],
        check=False,
        env=at_home(home),
        stdin=subprocess.DEVNULL,
        timeout=2 * HANG,
    ).returncode


def test_a_worker_is_polite_and_its_own_hooks_keep_still(home: Path, data: Path, folder: Path) -> None:
    path = transcript(home, SESSION, folder, MANY)
    hooked("SessionEnd", data, home, told(path, folder))
    [job] = waiting(data)
    [worker] = workers(data)
    assert worker.environ()["EVERKEPT_INSIDE_HOOK"]
    while not reached(data, job):
        psutil.wait_procs([worker], timeout=NAP)
    if sys.platform == "win32":
        assert worker.nice() == psutil.BELOW_NORMAL_PRIORITY_CLASS
    else:
        assert worker.nice() > 0
        assert os.getsid(worker.pid) == worker.pid
    if sys.platform == "linux":
        assert 0 < worker.rlimit(psutil.RLIMIT_DATA)[0] <= MAX_MEMORY_BYTES
    wait_for_workers(data)
    inside = {"EVERKEPT_INSIDE_HOOK": "1"}
    assert hooked("SessionEnd", data, home, told(path, folder), **inside) == ""
    assert waiting(data) == []
    assert workers(data) == []


async def test_a_project_that_is_off_and_hooks_that_are_off_leave_nothing_behind(
    home: Path, data: Path, folder: Path
) -> None:
    path = transcript(home, SESSION, folder, 4)
    assert hooked("SessionEnd", data, home, told(path, folder), EVERKEPT_HOOKS="false") == ""
    assert not data.exists()  # noqa: ASYNC240
    await remember(data, folder, "The teapot leaks")
    library = SqliteLibrary(data)
    await library.set_off(folder.name, off=True)
    assert hooked("SessionEnd", data, home, told(path, folder)) == ""
    assert waiting(data) == []
    assert workers(data) == []
    assert await (await library.open_history_store()).scan(RecordFilter(kinds=("turn",))) == []
    await library.set_off(folder.name, off=False)
    await library.close()


def test_a_transcript_with_a_secret_is_masked_as_any_import_is(home: Path, data: Path, folder: Path) -> None:
    path = transcript(home, SESSION, folder, 1)
    said = json.loads(path.read_text("utf-8"))
    said["message"]["content"] = "The key is AKIAIOSFODNN7EXAMPLE, keep it safe"
    path.write_text(json.dumps(said) + "\n", encoding="utf-8")
    hooked("SessionEnd", data, home, told(path, folder))
    wait_for_workers(data)
    assert b"AKIAIOSFODNN7EXAMPLE" not in (data / "history.db").read_bytes()


def test_where_only_reading_is_allowed_what_waits_goes_on_waiting(home: Path, data: Path, folder: Path) -> None:
    jobs = JobQueue(data / "hooks")
    jobs.add(SessionJob("SessionEnd", SESSION, 1))
    before = jobs.read_job(jobs.list_names()[0])
    only_reading = {"EVERKEPT_READ_ONLY": "true"}
    assert hooked("SessionStart", data, home, told(None, folder), **only_reading) == ""
    assert hooked("SessionEnd", data, home, told(None, folder), **only_reading) == ""
    assert workers(data) == []
    assert [jobs.read_job(name) for name in jobs.list_names()] == [before]
    assert hooked("SessionStart", data, home, told(None, folder)) == ""
    wait_for_workers(data)
    assert jobs.list_names() == []
