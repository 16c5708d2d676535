import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core import times
from everkept.errors import InvalidInput, Refused, StoreBusy, Unavailable
from everkept.files.lease_lock import FolderLocks, LockTerms, compute_watch_seconds, parse_claim
from everkept.files.local import LocalFiles
from everkept.files.local_disk import LocalLockFiles, get_machine_id
from examples import examples
from file_stores import outcome
from lock_contenders import DEAD, Contention, Never

LOCK = ".everkept-bank.lock"
SECOND = 1_000_000
PATIENCE = 60.0  # seconds for what must happen and does


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def written(token: str = "a" * 32, *, machine: str = "elsewhere/1", pid: int = 1, until: int) -> str:
    return json.dumps({"machine": machine, "pid": pid, "token": token, "until": f"{until:020}"})


class Time:
    """A clock that stands until it is moved; whoever sleeps moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def terms(self, **more: object) -> LockTerms:
        async def sleep(seconds: float) -> None:
            self.seconds += seconds

        given = {"now": self.now, "elapsed": lambda: self.seconds, "sleep": sleep, "call_later": lambda *_: Never()}
        return LockTerms(**(given | more))  # type: ignore[arg-type]

    def now(self) -> int:
        return int(self.seconds * SECOND)


def contend(actions: list[tuple[str, int, int]]) -> None:
    dead = written(machine=get_machine_id(), pid=DEAD, until=2_000 * SECOND).encode()
    asyncio.run(Contention(3).run(actions, left_by_dead=dead))


KINDS = st.sampled_from(["step"] * 8 + ["crash", "learn"])


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(0, 2), st.integers(1, 9)), max_size=30))
def test_one_holds_whoever_dies_and_however_slow_each_step_is(actions: list[tuple[str, int, int]]) -> None:
    contend(actions)


@pytest.mark.parametrize("last", ["step", "crash"])
def test_one_holds_wherever_a_contender_pauses_while_another_comes_and_goes(last: str) -> None:
    for seen, gone, late in itertools.product(range(1, 8), range(1, 20), range(1, 8)):
        contend([("step", 2, seen), ("step", 0, gone), (last, 0, 1), ("step", 2, late)])


async def test_a_lock_says_whose_it_is_and_until_when(tmp_path: Path) -> None:
    time = Time()
    async with LocalFiles(tmp_path, terms=time.terms()).lock("bank"):
        said = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))
    assert said["machine"] == get_machine_id()
    assert int(said["until"]) == time.now() + 30 * SECOND
    assert names(tmp_path) == []


async def test_a_dead_process_of_this_machine_is_found_out_at_once(tmp_path: Path) -> None:
    time = Time()
    until = time.now() + 30 * SECOND
    claim = written(machine=get_machine_id(), pid=77, until=until)
    (tmp_path / LOCK).write_text(claim, encoding="utf-8")
    before = time.seconds
    store = LocalFiles(tmp_path, terms=time.terms(is_running=lambda pid: pid != 77))
    async with store.lock("bank"):
        assert time.seconds == before
    assert names(tmp_path) == []


async def test_a_process_of_another_machine_is_not_looked_for_here(tmp_path: Path) -> None:
    time = Time()
    claim = written(pid=77, until=time.now() + 30 * SECOND)
    (tmp_path / LOCK).write_text(claim, encoding="utf-8")
    store = LocalFiles(tmp_path, terms=time.terms(is_running=lambda _: False))
    with pytest.raises(StoreBusy) as caught:
        async with store.lock("bank"):
            pass
    assert caught.value.facts["holder"] == "process 77 on elsewhere"
    assert (tmp_path / LOCK).read_text(encoding="utf-8") == claim


@pytest.mark.parametrize(
    ("content", "waited"),
    [
        (lambda now: written(until=now - 3_600 * SECOND), 0),  # long over
        (lambda now: written(until=now - SECOND), 10),  # a living holder would have renewed it
        (
            lambda now: written(until=now + 3_600 * SECOND),
            10,
        ),  # no holder writes that; a clock jumped, or it was shipped
        (lambda now: "", 15),  # died between making the file and writing it
        (lambda now: "no json", 15),
        (lambda now: '{"machine": 1}', 15),
        (lambda now: written("../../token", until=now), 15),
        (lambda now: "[" * 4_000, 15),
        (lambda now: written(until=0).replace(f'"{0:020}"', "Infinity"), 15),
    ],
    ids=["long over", "just over", "far ahead", "empty", "no json", "half", "bad token", "deep", "endless"],
)
async def test_a_lease_that_nobody_renews_is_over(tmp_path: Path, content: Callable[[int], str], waited: int) -> None:
    time = Time()
    (tmp_path / LOCK).write_text(content(time.now()), encoding="utf-8")
    before = time.seconds
    async with LocalFiles(tmp_path, terms=time.terms()).lock("bank"):
        assert waited <= time.seconds - before < waited + 1
    assert names(tmp_path) == []


async def test_what_was_watched_counts_for_the_next_try(tmp_path: Path) -> None:
    time = Time()
    claim = written(until=time.now() + 60 * SECOND)
    (tmp_path / LOCK).write_text(claim, encoding="utf-8")
    store = LocalFiles(tmp_path, terms=time.terms())
    with pytest.raises(StoreBusy):
        await store.lock("bank").__aenter__()
    before = time.seconds
    async with store.lock("bank"):
        assert time.seconds - before < 11


async def test_locks_shipped_in_a_repository_that_lead_in_a_circle_end_in_an_error(tmp_path: Path) -> None:
    time = Time()
    claim = written(until=time.now() - 3_600 * SECOND)
    for name in (LOCK, f".everkept-bank.{'a' * 32}.lock"):
        (tmp_path / name).write_text(claim, encoding="utf-8")
    with pytest.raises(Refused) as caught:
        async with LocalFiles(tmp_path, terms=time.terms()).lock("bank"):
            pass
    assert "Delete the files" in str(caught.value.hint)


async def test_a_shipped_lock_writes_no_control_characters_into_an_error(tmp_path: Path) -> None:
    time = Time()
    claim = written(machine="\x1b[2Jhost", until=time.now() + 60 * SECOND)
    (tmp_path / LOCK).write_text(claim, encoding="utf-8")
    with pytest.raises(StoreBusy) as caught:
        async with LocalFiles(tmp_path, terms=time.terms()).lock("bank"):
            pass
    assert "\x1b" not in str(caught.value)


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


SHAPES = [_make_folder, _make_link, *([os.mkfifo] if sys.platform != "win32" else [])]


@pytest.mark.parametrize("make", SHAPES)
async def test_a_shipped_lock_that_is_no_file_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / LOCK)
    with pytest.raises(Refused, match=LOCK) as caught:
        async with LocalFiles(tmp_path, terms=Time().terms()).lock("bank"):
            pass
    assert "Delete it" in str(caught.value.hint)


class _Noting(LocalLockFiles):
    """Says when a lock was renewed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.renewed: asyncio.Queue[bool] = asyncio.Queue()

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        done = await super().rewrite(name, mark, content)
        self.renewed.put_nowait(done)
        return done


async def test_a_lock_is_renewed_while_it_is_held(tmp_path: Path) -> None:
    time = Time()
    due: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

    def call_later(seconds: float, function: Callable[[], None]) -> Never:
        assert seconds == 10
        due.put_nowait(function)
        return Never()

    files = _Noting(tmp_path)
    other = LocalFiles(tmp_path, terms=time.terms(patience=0.0))
    async with FolderLocks(files, "", time.terms(call_later=call_later)).lock("bank"):
        for _ in range(20):
            async with asyncio.timeout(PATIENCE):
                renew = await due.get()  # it is set anew once a renewal is done
                time.seconds += 10
                renew()
                assert await files.renewed.get()
            said = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))
            assert int(said["until"]) == time.now() + 30 * SECOND
            with pytest.raises(StoreBusy):
                await other.lock("bank").__aenter__()
    assert names(tmp_path) == []


async def test_a_lock_is_renewed_while_a_thread_works_under_it(tmp_path: Path) -> None:
    time = Time()
    due: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def call_later(_: float, function: Callable[[], None]) -> Never:
        due.put_nowait(function)
        return Never()

    async def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return "done"

    files = _Noting(tmp_path)
    locks = FolderLocks(files, "", time.terms(call_later=call_later))
    async with asyncio.timeout(PATIENCE):
        running = asyncio.create_task(locks.run_in_thread("bank", work, None))
        await begun.wait()
        for _ in range(3):
            time.seconds += 10
            (await due.get())()
            assert await files.renewed.get()
            said = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))
            assert int(said["until"]) == time.now() + 30 * SECOND
        go_on.set()
        assert await running == "done"
    assert names(tmp_path) == []


async def test_a_timer_that_goes_off_before_there_is_a_lock_renews_nothing(tmp_path: Path) -> None:
    time = Time()
    due: list[Callable[[], None]] = []

    def call_later(_: float, function: Callable[[], None]) -> Never:
        due.append(function)
        return Never()

    async def sleep(seconds: float) -> None:
        time.seconds += seconds
        due.pop()()

    (tmp_path / LOCK).write_text(written(until=time.now() - SECOND), encoding="utf-8")
    files = _Noting(tmp_path)
    locks = FolderLocks(files, "", time.terms(call_later=call_later, sleep=sleep))
    async with locks.lock("bank"):
        assert len(due) == 1
    assert files.renewed.empty()
    assert names(tmp_path) == []


async def test_work_in_a_thread_that_outlasts_its_lease_writes_no_more(tmp_path: Path) -> None:
    time = Time()
    store = LocalFiles(tmp_path, terms=time.terms())
    taken = written("b" * 32, until=time.now())
    outcomes: list[str] = []

    async def work() -> None:
        await store.write("x.md", b"mine")
        time.seconds += 3_600
        token = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))["token"]
        (tmp_path / f".everkept-bank.{token}.lock").write_text(taken, encoding="utf-8")
        outcomes.append(await outcome(store.write("x.md", b"late")))

    with pytest.raises(StoreBusy):
        await store.run_locked("bank", work)
    assert outcomes == ["store_busy"]
    assert (tmp_path / "x.md").read_bytes() == b"mine"


async def test_a_holder_that_slept_past_its_lease_writes_no_more(tmp_path: Path) -> None:
    time = Time()
    store = LocalFiles(tmp_path, terms=time.terms())
    other = LocalFiles(tmp_path, terms=time.terms(patience=60.0))
    refused: list[str] = []

    async def sleepy() -> None:
        async with store.lock("bank"):
            await store.write("x.md", b"mine")
            time.seconds += 3_600
            async with other.lock("bank"):
                await other.write("x.md", b"other")
                refused.append(await outcome(store.write("x.md", b"late")))
                refused.append(await outcome(store.append("x.md", b"late")))
                refused.append(await outcome(store.remove("x.md")))
                refused.append(await outcome(store.rename("x.md", "y.md")))

    with pytest.raises(StoreBusy):
        await sleepy()
    assert refused == ["store_busy"] * 4
    assert await store.read("x.md") == b"other"
    async with store.lock("bank"):
        await store.write("x.md", b"again")
    assert names(tmp_path) == ["x.md"]


async def test_a_lease_that_is_over_and_nobody_took_goes_on(tmp_path: Path) -> None:
    time = Time()
    store = LocalFiles(tmp_path, terms=time.terms())
    async with store.lock("bank"):
        time.seconds += 3_600
        await store.write("x.md", b"mine")
    assert names(tmp_path) == ["x.md"]


async def test_a_task_that_outlives_the_block_is_free_of_its_lease(tmp_path: Path) -> None:
    time = Time()
    store = LocalFiles(tmp_path, terms=time.terms())
    released = asyncio.Event()

    async def later() -> None:
        await released.wait()
        time.seconds += 3_600
        await store.write("x.md", b"later")

    async with store.lock("bank"):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    released.set()
    await task
    assert await store.read("x.md") == b"later"


async def test_a_task_that_takes_a_lock_twice_is_told_so(tmp_path: Path) -> None:
    store = LocalFiles(tmp_path)
    async with store.lock("bank"):
        with pytest.raises(RuntimeError):
            await store.lock("bank").__aenter__()
        async with store.lock("other"):
            pass


@pytest.mark.parametrize("name", ["", "Bank", "a/b", "..", "a.b", "x" * 41, "é"])
def test_a_lock_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        LocalFiles(tmp_path).lock(name)


class _Failing(LocalLockFiles):
    """Cannot remove anything."""

    async def remove(self, name: str, mark: bytes) -> bool:
        raise Unavailable("The connection is lost.")


async def test_work_that_is_done_does_not_fail_because_its_lock_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with FolderLocks(_Failing(tmp_path), "").lock("bank"):
        pass
    assert "will expire" in caplog.text


@given(st.binary(max_size=200), st.integers(0, 2**63))
def test_whatever_a_lock_file_holds_is_a_claim(content: bytes, modified_at: int) -> None:
    claim = parse_claim(LOCK, content, modified_at)
    assert claim.token
    assert claim.owner


@given(st.integers(0, 4 * 10**15), st.integers(0, 4 * 10**15))
def test_a_claim_is_watched_for_a_lease_at_most(until: int, now: int) -> None:
    assert 0 <= compute_watch_seconds(until, now, 30.0) <= 30.0
    assert compute_watch_seconds(times.read_clock() + SECOND, times.read_clock(), 30.0) == 30.0
