import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.core.locks import FileLock
from everkept.core.runtime import run_without_loop
from everkept.hooks import workspace
from everkept.hooks.events import HookContext, HookEvent
from everkept.hooks.session_end import MAX_PENDING_JOBS, JobQueue, SessionJob, get_lock_path, handle_session_end
from everkept.hooks.workspace import SessionLedger, get_hooks_folder
from everkept.settings import Settings, read_settings

AT = 1_700_000_000_000_000
SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def home(home_without_clients: Path) -> Path:
    return home_without_clients


@pytest.fixture
def transcript(home: Path) -> Path:
    path = home / ".claude" / "projects" / "-x" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"type": "user"}) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def settings(tmp_path: Path, home: Path) -> Settings:
    return read_settings({"data_dir": tmp_path / "data"}, {"EVERKEPT_CONFIG": "none"})


@pytest.fixture(autouse=True)
def at_work(settings: Settings) -> Iterator[None]:
    """A worker seems to be at work, so that none is started."""
    get_hooks_folder(settings).mkdir(parents=True)
    lock = FileLock(get_lock_path(settings))
    assert lock.take()
    yield
    lock.release()


def left(settings: Settings, event: HookEvent) -> list[SessionJob]:
    """The jobs that wait after the event."""
    ledger = SessionLedger(get_hooks_folder(settings), event.session)
    answer = handle_session_end(event, HookContext(settings, None, ledger, AT, run_without_loop))
    assert answer is None
    jobs = JobQueue(get_hooks_folder(settings))
    return [job for job in map(jobs.read_job, jobs.list_names()) if job is not None]


def told(settings: Settings) -> list[str]:
    return [fault.reason for fault in workspace.read_recent_faults(get_hooks_folder(settings))]


@pytest.mark.parametrize("name", ["PreCompact", "SessionEnd"])
def test_a_job_says_what_is_to_be_done(settings: Settings, transcript: Path, home: Path, name: str) -> None:
    event = HookEvent(name, SESSION, folder=home.parent / "shop", transcript=transcript)
    [job] = left(settings, event)
    assert (job.event, job.session, job.at) == (name, SESSION, AT)
    assert (job.transcript, job.source) == (str(transcript), "claude-code")
    assert job.folder == str(home.parent / "shop")
    assert told(settings) == []


def test_a_job_keeps_the_settings_of_its_hook(tmp_path: Path, transcript: Path) -> None:
    flags: dict[str, Any] = {
        "data_dir": tmp_path / "data",
        "project": "shop",
        "mask_secrets": False,
        "history_exclude": "/private",
        "consolidation_on_shutdown": False,
        "keep_candidates": True,
    }
    settings = read_settings(flags, {"EVERKEPT_CONFIG": "none"})
    [job] = left(settings, HookEvent("SessionEnd", SESSION, transcript=transcript))
    assert job.wishes == {name: value for name, value in flags.items() if name != "data_dir"}


def test_a_path_may_begin_in_the_home_folder(settings: Settings, transcript: Path, home: Path) -> None:
    short = Path("~", transcript.relative_to(home))
    [job] = left(settings, HookEvent("PreCompact", SESSION, transcript=short))
    assert job.transcript == str(transcript)


def test_a_session_without_a_transcript_is_still_summed_up(settings: Settings) -> None:
    [job] = left(settings, HookEvent("SessionEnd", SESSION))
    assert job.transcript is None
    assert told(settings) == []


@pytest.mark.parametrize("event", [HookEvent("PreCompact", SESSION), HookEvent("SessionEnd"), HookEvent("PreCompact")])
def test_nothing_is_left_where_nothing_is_to_be_done(settings: Settings, event: HookEvent) -> None:
    assert left(settings, event) == []


def test_a_session_in_which_nothing_was_said_has_no_transcript(settings: Settings, transcript: Path) -> None:
    missing = transcript.with_name("other.jsonl")
    [job] = left(settings, HookEvent("SessionEnd", SESSION, transcript=missing))
    assert job.transcript is None
    assert told(settings) == []


def test_a_compaction_whose_transcript_is_missing_is_a_fault(settings: Settings, transcript: Path) -> None:
    missing = transcript.with_name("other.jsonl")
    assert left(settings, HookEvent("PreCompact", SESSION, transcript=missing)) == []
    assert [str(missing) in reason for reason in told(settings)] == [True]


def test_a_folder_is_no_transcript(settings: Settings, transcript: Path) -> None:
    [job] = left(settings, HookEvent("SessionEnd", SESSION, transcript=transcript.parent))
    assert job.transcript is None
    assert len(told(settings)) == 1


def test_a_file_outside_of_the_assistants_folders_is_not_taken_in(settings: Settings, home: Path) -> None:
    diary = home / "diary.jsonl"
    diary.write_text("{}\n", encoding="utf-8")
    [job] = left(settings, HookEvent("SessionEnd", SESSION, transcript=diary))
    assert job.transcript is None
    assert len(told(settings)) == 1


def test_where_only_reading_is_allowed_nothing_is_left(tmp_path: Path, transcript: Path) -> None:
    flags = {"data_dir": tmp_path / "data", "read_only": True}
    settings = read_settings(flags, {"EVERKEPT_CONFIG": "none"})
    assert left(settings, HookEvent("SessionEnd", SESSION, transcript=transcript)) == []


def test_what_is_dropped_because_too_much_waits_is_a_fault(settings: Settings, transcript: Path) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    for at in range(MAX_PENDING_JOBS):
        jobs.add(SessionJob("SessionEnd", "one", at))
    assert len(left(settings, HookEvent("SessionEnd", SESSION))) == MAX_PENDING_JOBS
    assert len(told(settings)) == 1
