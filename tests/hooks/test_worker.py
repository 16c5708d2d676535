import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from data_folders import backed_up, cut_short, restored
from everkept.app.app import App
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.hooks import workspace
from everkept.hooks.session_end import JobQueue, SessionJob, get_stop_request
from everkept.hooks.worker import MAX_FAILURES, MAX_STARTS, TRANSIENT_MICROSECONDS, HookWorker, main
from everkept.hooks.workspace import SESSIONS_FOLDER, SessionLedger, get_hooks_folder
from everkept.settings import Settings, read_settings
from everkept.values import replace
from memory_shelf import memory
from records import DAY_ONE, batch

SESSION = "11111111-2222-4333-8444-555555555555"
NO_TIME_LIMIT = 1e9
PAST = DAY_ONE


@pytest.fixture
def home(home_without_clients: Path) -> Path:
    return home_without_clients


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the assistant works: a repository, so that it has a project of its own."""
    made = tmp_path / "shop"
    (made / ".git").mkdir(parents=True)
    return made


@pytest.fixture
def settings(tmp_path: Path, home: Path) -> Settings:
    return read_settings({"data_dir": tmp_path / "data"}, {"EVERKEPT_CONFIG": "none"})


@pytest.fixture
def transcript(home: Path, folder: Path) -> Path:
    path = home / ".claude" / "projects" / "-x" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    write(path, said(folder, 0), said(folder, 1))
    return path


def said(folder: Path, number: int, session: str = SESSION) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"{session}-{number}",
        "sessionId": session,
        "timestamp": f"2026-03-02T10:{number:02}:00.000Z",
        "cwd": str(folder),
        "message": {"role": "user", "content": f"Remark {number} about the teapot"},
    }


def write(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")


def job_of(transcript: Path | None, folder: Path, event: str = "SessionEnd", **more: Any) -> SessionJob:
    path = None if transcript is None else str(transcript)
    source = None if transcript is None else "claude-code"
    return replace(SessionJob(event, SESSION, 1, path, source, str(folder)), **more)


async def worked(settings: Settings, *jobs: SessionJob, ends_at: float = NO_TIME_LIMIT) -> list[SessionJob]:
    """What waits after a worker has been there."""
    kept = JobQueue(get_hooks_folder(settings))
    for job in jobs:
        kept.add(job)
    await HookWorker(settings, get_hooks_folder(settings), ends_at).process_jobs()
    return [job for job in map(kept.read_job, kept.list_names()) if job is not None]


async def turns(settings: Settings) -> list[str]:
    library = SqliteLibrary(settings.data_dir)
    found = await (await library.open_history_store()).scan(RecordFilter(kinds=("turn",)))
    await library.close()
    return [record.text for record in found]


async def remember(settings: Settings, folder: Path, *contents: str, **more: Any) -> None:
    app = App(replace(settings, path=folder, embedding_model="none"))
    given = {"type": "episodic", "scope": "session", "session_id": SESSION} | more
    for content in contents:
        await app.call(Session(), "store_memory", {"content": content} | given)
    await app.close()


async def kept(settings: Settings, folder: Path, *, deleted: bool | None = False) -> list[Record]:
    """What the project of the folder has."""
    app = App(replace(settings, path=folder))
    project = await app.memory_access.find_project(Session())
    assert project is not None
    _, store = await app.library.open(project.name)
    found = await store.scan(RecordFilter(deleted=deleted))
    await app.close()
    return found


def told(settings: Settings) -> list[str]:
    return [fault.reason for fault in workspace.read_recent_faults(get_hooks_folder(settings))]


async def test_a_transcript_is_taken_in_once(settings: Settings, transcript: Path, folder: Path) -> None:
    assert await worked(settings, job_of(transcript, folder, "PreCompact")) == []
    assert len(await turns(settings)) == 2
    write(transcript, *(said(folder, number) for number in range(5)))
    assert await worked(settings, *[job_of(transcript, folder)] * 3) == []
    assert sorted(await turns(settings)) == [f"Remark {n} about the teapot" for n in range(5)]
    assert told(settings) == []


async def test_what_agents_said_is_taken_in_with_it(settings: Settings, transcript: Path, folder: Path) -> None:
    agent = said(folder, 7) | {"isSidechain": True, "agentId": "a1"}
    write(transcript.with_suffix("") / "subagents" / "agent-a1.jsonl", agent)
    assert await worked(settings, job_of(transcript, folder)) == []
    assert "Remark 7 about the teapot" in await turns(settings)


async def test_a_session_that_ends_is_consolidated_and_summed_up(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    notes = [f"The teapot of service {n} leaks at the handle" for n in range(3)]
    await remember(settings, folder, *notes)
    assert await worked(settings, job_of(transcript, folder)) == []
    found = {record.id: record for record in await kept(settings, folder)}
    assert "4 memories (3 episodic, 1 semantic)" in found[SESSION].text
    assert found[SESSION].facets["ended_at"]
    memories = [record for record in found.values() if record.kind == "memory"]
    assert sum(bool(record.facets.get("consolidated")) for record in memories) == 3
    assert [record.scope for record in memories if record.facets.get("derived")] == ["project"]
    # A second time, nothing comes on top of it.
    assert await worked(settings, job_of(transcript, folder)) == []
    assert {record.id for record in await kept(settings, folder)} == set(found)


@pytest.mark.parametrize(("asked_for", "is_automatic"), [([], True), (["The teapot leaks"], None)])
async def test_what_is_made_of_automatic_memories_alone_fades_like_them(
    settings: Settings, folder: Path, asked_for: list[str], is_automatic: bool | None
) -> None:
    notes = [
        "The teapot leaks at the handle, as the kettle did.",
        "The teapot leaks less with a lid that closes.",
        "Wrote a test for the teapot that leaks.",
    ]
    await remember(settings, folder, *notes, source={"tool": "hook PostToolUse"})
    await remember(settings, folder, *asked_for)
    assert await worked(settings, job_of(None, folder)) == []
    [derived] = [each for each in await kept(settings, folder) if each.facets.get("derived")]
    assert derived.facets.get("automatic") == is_automatic


@pytest.mark.parametrize(
    ("event", "wishes"), [("PreCompact", {}), ("SessionEnd", {"consolidation_on_shutdown": False})]
)
async def test_a_session_that_goes_on_or_wants_none_gets_no_summary(
    settings: Settings, transcript: Path, folder: Path, event: str, wishes: dict[str, Any]
) -> None:
    notes = [f"The teapot of service {n} leaks at the handle" for n in range(3)]
    await remember(settings, folder, *notes)
    assert await worked(settings, job_of(transcript, folder, event, wishes=wishes)) == []
    assert len(await turns(settings)) == 2
    found = {record.id: record for record in await kept(settings, folder)}
    assert found[SESSION].text == ""
    assert not any(record.facets.get("consolidated") for record in found.values())


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_what_a_person_states_is_kept_only_if_a_setting_says_so(
    settings: Settings, transcript: Path, folder: Path, *, is_wanted: bool
) -> None:
    line = said(folder, 2)
    line["message"]["content"] = "Look at the tests. Never push to main without a review."
    write(transcript, said(folder, 0), line)
    wishes = {"keep_candidates": is_wanted, "consolidation_on_shutdown": False}
    for _ in range(2):  # once, however often the session ends
        assert await worked(settings, job_of(transcript, folder, wishes=wishes)) == []
    await remember(settings, folder, "The teapot leaks")
    found = [r for r in await kept(settings, folder) if r.kind == "memory" and "teapot" not in r.text]
    assert [(r.text, r.facets["automatic"]) for r in found] == [
        ("Never push to main without a review.", True)
    ] * is_wanted


async def test_the_end_of_a_session_lets_old_automatic_memories_fade(settings: Settings, folder: Path) -> None:
    await remember(settings, folder, "The teapot leaks")
    library = SqliteLibrary(settings.data_dir)
    _, store = await library.open(folder.name)
    facets = {"automatic": True}
    old = memory("an old failure", type="episodic", created_at=PAST, facets=facets)
    await store.commit(batch(old, memory("an old decision", type="episodic", created_at=PAST)))
    await library.close()
    assert await worked(settings, job_of(None, folder)) == []
    faded = [record.id for record in await kept(settings, folder, deleted=True)]
    assert faded == ["an old failure"]


async def test_nothing_is_done_for_a_project_that_is_off(settings: Settings, transcript: Path, folder: Path) -> None:
    await remember(settings, folder, "The teapot leaks")
    library = SqliteLibrary(settings.data_dir)
    await library.set_off(folder.name, off=True)
    assert await worked(settings, job_of(transcript, folder)) == []
    assert await turns(settings) == []
    found = {record.id: record for record in await kept(settings, folder)}
    assert found[SESSION].text == ""
    await library.close()
    assert told(settings) == []


async def test_a_folder_that_is_gone_keeps_nothing_from_being_taken_in(
    settings: Settings, transcript: Path, tmp_path: Path
) -> None:
    assert await worked(settings, job_of(transcript, tmp_path / "worktree")) == []
    assert len(await turns(settings)) == 2
    assert told(settings) == []


async def test_the_settings_of_the_hook_hold_for_its_job(settings: Settings, transcript: Path, folder: Path) -> None:
    wishes = {"history_exclude": str(folder), "no_token": True}
    assert await worked(settings, job_of(transcript, folder, wishes=wishes)) == []
    assert await turns(settings) == []


async def test_a_project_that_is_archived_is_left_alone(settings: Settings, transcript: Path, folder: Path) -> None:
    await remember(settings, folder, "The teapot leaks")
    library = SqliteLibrary(settings.data_dir)
    await library.archive(folder.name)
    await library.close()
    assert await worked(settings, job_of(transcript, folder)) == []
    assert len(await turns(settings)) == 2
    assert told(settings) == []


async def test_a_transcript_that_is_gone_is_told_of_and_the_session_summed_up(
    settings: Settings, home: Path, folder: Path
) -> None:
    await remember(settings, folder, "The teapot leaks")
    gone = home / ".claude" / "projects" / "gone.jsonl"
    assert await worked(settings, job_of(gone, folder)) == []
    found = {record.id: record for record in await kept(settings, folder)}
    assert "1 memory" in found[SESSION].text
    assert [str(gone) in reason for reason in told(settings)] == [True]


async def test_a_session_whose_name_cannot_be_one_is_told_of(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    await remember(settings, folder, "The teapot leaks")
    assert await worked(settings, job_of(transcript, folder, session="x" * 100_000)) == []
    assert len(await turns(settings)) == 2
    assert len(told(settings)) == 1


async def test_a_job_that_fails_is_tried_again_by_others_and_given_up_in_the_end(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "history.db").write_bytes(b"this is no database" * 100)
    left = await worked(settings, job_of(transcript, folder))
    assert [job.failures for job in left] == [1]
    for count in range(2, MAX_FAILURES):
        assert [job.failures for job in await worked(settings)] == [count]
    assert await worked(settings) == []
    [aside] = JobQueue(get_hooks_folder(settings)).list_failed()
    assert "not a database" in aside["reason"]
    assert len(told(settings)) == MAX_FAILURES


async def test_one_job_that_fails_does_not_stop_the_others(settings: Settings, transcript: Path, folder: Path) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    jobs.add(job_of(transcript, folder, at=1))
    (get_hooks_folder(settings) / "jobs" / jobs.list_names()[0]).write_text("{", encoding="utf-8")
    bad = job_of(transcript, folder, at=2, wishes={"history_exclude": 5})
    left = await worked(settings, bad, job_of(transcript, folder, at=3))
    assert [job.at for job in left] == [2]
    assert len(await turns(settings)) == 2


async def test_a_job_that_always_ends_its_worker_is_given_up(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    assert await worked(settings, job_of(transcript, folder, starts=MAX_STARTS - 1)) == []
    assert JobQueue(get_hooks_folder(settings)).list_failed() == []
    assert await worked(settings, job_of(transcript, folder, starts=MAX_STARTS)) == []
    assert len(JobQueue(get_hooks_folder(settings)).list_failed()) == 1
    assert len(told(settings)) == 1


async def test_what_the_time_does_not_suffice_for_is_left_to_the_next(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    other = transcript.with_name("other.jsonl")
    write(other, said(folder, 5, "other"))
    jobs = [job_of(transcript, folder, at=1), job_of(other, folder, at=2)]
    left = await worked(settings, *jobs, ends_at=time.monotonic())
    assert [job.at for job in left] == [1, 2]
    assert [job.failures for job in left] == [0, 0]
    assert await worked(settings) == []
    assert len(await turns(settings)) == 3


async def test_a_worker_that_is_asked_to_stop_leaves_its_jobs_to_the_next(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    jobs.add(job_of(transcript, folder))
    assert get_stop_request(settings).take()
    worker = HookWorker(settings, get_hooks_folder(settings), NO_TIME_LIMIT)
    await worker.process_jobs()
    assert (len(jobs.list_names()), worker.has_more(), told(settings)) == (1, False, [])
    get_stop_request(settings).end()
    assert await worked(settings) == []


async def test_a_job_that_comes_while_others_are_worked_off_is_worked_off_too(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    jobs.add(job_of(transcript, folder))
    worker = HookWorker(settings, get_hooks_folder(settings), NO_TIME_LIMIT)
    await worker.process_jobs()
    assert not worker.has_more()
    jobs.add(job_of(transcript, folder, at=5))
    assert worker.has_more()
    await worker.process_jobs()
    assert not worker.has_more()


def test_what_sessions_of_long_ago_have_left_is_removed(settings: Settings) -> None:
    settings.data_dir.mkdir()
    old, new = (SessionLedger(get_hooks_folder(settings), name) for name in ("aaaa", "bbbb"))
    for ledger in (old, new):
        ledger.claim(["x"])
    workspace = sorted((get_hooks_folder(settings) / SESSIONS_FOLDER).iterdir())
    os.utime(workspace[0], (0, 0))
    HookWorker(settings, get_hooks_folder(settings), NO_TIME_LIMIT).prune()
    assert (old.read_given(), new.read_given()) == (set(), {"x"})


async def test_a_worker_that_has_become_too_large_leaves_the_rest_to_the_next(
    settings: Settings, transcript: Path, folder: Path
) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    for at in (1, 2):
        jobs.add(job_of(transcript, folder, at=at))
    worker = HookWorker(settings, get_hooks_folder(settings), NO_TIME_LIMIT, most_resident=1)
    await worker.process_jobs()
    assert not worker.has_more()
    left = [jobs.read_job(name) for name in jobs.list_names()]
    assert [(job.at, job.failures, job.starts) for job in left if job] == [(1, 0, 0), (2, 0, 0)]
    assert ["out of memory" in reason for reason in told(settings)] == [True]
    assert await worked(settings) == []
    assert len(await turns(settings)) == 2


def test_where_only_reading_is_allowed_a_worker_leaves_all_as_it_is(settings: Settings) -> None:
    jobs = JobQueue(get_hooks_folder(settings))
    jobs.add(SessionJob("SessionEnd", SESSION, 1))
    before = jobs.read_job(jobs.list_names()[0])
    main(replace(settings, read_only=True))
    assert [jobs.read_job(name) for name in jobs.list_names()] == [before]


async def test_what_hooks_stored_is_counted_and_gives_no_topics(settings: Settings, folder: Path) -> None:
    await remember(settings, folder, "`make` failed", source={"tool": "hook:PostToolUse"})
    assert await worked(settings, job_of(None, folder)) == []
    found = {record.id: record for record in await kept(settings, folder)}
    assert found[SESSION].text == "1 memory (1 episodic)."


@pytest.fixture
def link(transcript: Path, tmp_path: Path) -> Path:
    """A transcript that lies elsewhere since its hook was called."""
    elsewhere = tmp_path / "diary.jsonl"
    transcript.replace(elsewhere)
    transcript.symlink_to(elsewhere)
    return transcript


async def test_a_transcript_that_has_become_a_link_to_elsewhere_is_not_taken_in(
    settings: Settings, link: Path, folder: Path
) -> None:
    assert await worked(settings, job_of(link, folder)) == []
    assert await turns(settings) == []
    assert [str(link) in reason for reason in told(settings)] == [True]


async def test_agents_whose_folder_is_a_link_to_elsewhere_are_not_taken_in(
    settings: Settings, transcript: Path, folder: Path, tmp_path: Path
) -> None:
    agent = said(folder, 7) | {"isSidechain": True, "agentId": "a1"}
    write(tmp_path / "elsewhere" / "agent-a1.jsonl", agent)
    transcript.with_suffix("").mkdir()
    (transcript.with_suffix("") / "subagents").symlink_to(tmp_path / "elsewhere")
    assert await worked(settings, job_of(transcript, folder)) == []
    assert len(await turns(settings)) == 2


async def test_what_will_pass_uses_up_no_try(
    settings: Settings, transcript: Path, folder: Path, tmp_path: Path
) -> None:
    await remember(settings, folder, "The teapot leaks")
    backup, safety = tmp_path / "copy.zip", tmp_path / "safety.zip"
    backed_up(settings.data_dir, backup)
    cut_short(settings.data_dir, backup, safety)
    left = await worked(settings, job_of(transcript, folder, at=read_clock()))
    for _ in range(MAX_STARTS + 1):
        left = await worked(settings)
    assert [(job.failures, job.starts) for job in left] == [(0, 0)]
    assert "being restored" in told(settings)[0]
    left = await worked(settings, job_of(transcript, folder, at=read_clock() - TRANSIENT_MICROSECONDS))
    assert [job.failures for job in left] == [1, 0]
    restored(settings.data_dir, backup, replace=True, safety=tmp_path / "again.zip")
    assert await worked(settings) == []
    assert len(await turns(settings)) == 2
