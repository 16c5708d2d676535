import asyncio
import os
import resource
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everkept.errors import Conflict, Refused, StorageFull
from everkept.files.lease_lock import LockTerms
from everkept.files.local import LocalFiles
from file_stores import outcome
from processes import Actor, acting, said_by

HOUR = 3600
NOBODY = 65_534


@pytest.fixture
def store(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_two_processes_add_to_the_same_files_and_nothing_is_lost(tmp_path: Path) -> None:
    actors = [Actor("file_actors:add_lines", tmp_path, who, 60) for who in ("one", "two")]
    assert [actor.hear() for actor in actors] == ["ready", "ready"]
    for actor in actors:
        actor.tell()
    assert [actor.finish() for actor in actors] == [["done"], ["done"]]
    expected = sorted(f"{who} {number}" for who in ("one", "two") for number in range(60))
    for file in ("whole.md", "log.jsonl"):
        assert sorted((tmp_path / file).read_text(encoding="utf-8").splitlines()) == expected
    assert names(tmp_path) == ["log.jsonl", "whole.md"]


async def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    with acting("file_actors:hold_lock", tmp_path) as holder:
        assert holder.hear() == "holding"
        waiting = LocalFiles(tmp_path, terms=LockTerms(patience=0.01))
        with pytest.raises(Exception) as caught:
            await waiting.lock("bank").__aenter__()
        assert f"process {holder.process.pid}" in caught.value.facts["holder"]
        holder.kill()
        async with waiting.lock("bank"):
            pass
    assert names(tmp_path) == []


BEFORE = {"folder": None, "folder/below": None, "folder/below/z.md": "old", "x.md": "old"}


@pytest.mark.parametrize(
    ("change", "after", "between"),
    [
        ("write", BEFORE | {"x.md": "new"}, []),
        (
            "edit",
            BEFORE | {"x.md": "new", "deep": None, "deep/y.md": "new", "z.md": "new"},
            [
                BEFORE | {"deep": None},
                BEFORE | {"x.md": "new", "deep": None},
                BEFORE | {"x.md": "new", "deep": None, "deep/y.md": "new"},
            ],
        ),
        (
            "make",
            BEFORE | {"deep": None, "deep/er": None, "deep/er/x.md": "new"},
            [BEFORE | {"deep": None}, BEFORE | {"deep": None, "deep/er": None}],
        ),
        ("rename", {**{k: BEFORE[k] for k in BEFORE if k != "x.md"}, "y.md": "old"}, []),
        ("remove", {"x.md": "old"}, []),
    ],
)
def test_a_process_that_dies_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, change: str, after: dict[str, str], between: list[dict[str, str]]
) -> None:
    found = Actor("file_actors:die_at_every_call", tmp_path, change).finish()
    assert len(found) > 10
    assert found[0] == BEFORE
    assert found[-1] == after
    allowed = [BEFORE, *between, after]
    assert [state for state in found if state not in allowed] == []
    steps = [allowed.index(state) for state in found]
    assert steps == sorted(steps)


def grow_old(path: Path) -> None:
    long_ago = time.time() - 2 * HOUR
    os.utime(path, (long_ago, long_ago))


async def test_what_a_crash_left_is_swept_away_when_it_is_old(tmp_path: Path) -> None:
    old, fresh, hidden = ".x.md.00000000.tmp", ".x.md.11111111.tmp", ".removed.22222222.tmp"
    own = ".notes.tmp"
    for name in (old, fresh, own):
        (tmp_path / name).write_bytes(b"part")
    (tmp_path / hidden / "below").mkdir(parents=True)
    for name in (old, hidden, own):
        grow_old(tmp_path / name)
    await LocalFiles(tmp_path).write("x.md", b"new")
    assert names(tmp_path) == sorted([fresh, own, "x.md"])


async def test_a_replaced_file_keeps_its_rights(store: LocalFiles, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(b"old")
    script.chmod(0o750)
    await store.write("run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


async def test_a_new_file_has_the_rights_that_other_programs_give(store: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "theirs.md").write_bytes(b"")
    await store.write("ours.md", b"")
    await store.append("log.jsonl", b"")
    modes = {path.stat().st_mode for path in map(tmp_path.joinpath, names(tmp_path))}
    assert len(modes) == 1


async def test_files_are_flushed_before_the_first_is_in_place_and_their_folder_once(
    store: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x.md", "y.md"):
        (tmp_path / name).write_bytes(b"old")
    steps: list[str] = []

    def noting(name: str) -> None:
        step = getattr(os, name)

        def noted(*arguments: Any, **more: Any) -> Any:
            steps.append(name)
            return step(*arguments, **more)

        monkeypatch.setattr(os, name, noted)

    noting("fsync")
    noting("replace")
    await store.write_all({"x.md": b"new", "y.md": b"new"})
    flushed = [] if sys.platform == "darwin" else ["fsync"] * 2  # F_FULLFSYNC there
    assert steps == [*flushed, "replace", "replace", "fsync"]


async def test_files_of_which_one_finds_no_room_stay_as_they_were(store: LocalFiles, tmp_path: Path) -> None:
    for name in ("x.md", "y.md"):
        await store.write(name, b"old")
    with limited_files(1_000):
        assert await outcome(store.write_all({"x.md": b"new", "y.md": b"n" * 5_000})) == ("storage_full")
    assert (await store.read("x.md"), await store.read("y.md")) == (b"old", b"old")
    assert names(tmp_path) == ["x.md", "y.md"]


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


async def test_no_room_is_said_and_nothing_is_changed(store: LocalFiles, tmp_path: Path) -> None:
    await store.write("x.md", b"old")
    with limited_files(10_000):
        with pytest.raises(StorageFull):
            await store.write("x.md", b"n" * 50_000)
        with pytest.raises(StorageFull):
            await store.append("x.md", b"n" * 50_000)
    assert await store.read("x.md") == b"old"
    assert names(tmp_path) == ["x.md"]


async def test_a_link_that_is_swapped_in_leads_nowhere(tmp_path: Path) -> None:
    """Whenever it comes: between looking at a path and using it, too."""
    outside = tmp_path / "outside"
    outside.mkdir()
    store = LocalFiles(tmp_path / "bank")
    await store.make_folder("real")
    place, fresh = tmp_path / "bank" / "a", tmp_path / "fresh"
    place.symlink_to("real")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (outside, "real"):
                fresh.symlink_to(target)
                fresh.replace(place)

    swapping = asyncio.create_task(asyncio.to_thread(swap))
    outcomes = {await outcome(store.append("a/x.md", b"x")) for _ in range(400)}
    done.set()
    await swapping
    assert names(outside) == []
    assert outcomes <= {"ok", "refused"}


async def test_a_pipe_is_no_file(store: LocalFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert await store.list() == []
    assert await store.read_info("pipe") is None
    for call in (store.read("pipe"), store.write("pipe", b""), store.append("pipe", b"")):
        with pytest.raises(Refused):
            await call


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can reach, which those of tests are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_what_one_may_not_do_is_refused_and_changes_nothing(reachable: Path) -> None:
    # Permissions do not bind root, who therefore becomes another user once all is loaded.
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    bank = reachable / "bank"
    (bank / "open").mkdir(parents=True)
    for path, mode in (("secret.md", 0o000), ("open/protected.md", 0o444), ("open", 0o777)):
        if path.endswith(".md"):
            (bank / path).write_bytes(b"old")
        (bank / path).chmod(mode)
    bank.chmod(0o555)
    before = sorted(bank.rglob("*"))
    assert said_by("file_actors:try_as_another", bank, user) == {
        "read": "refused",
        "write": "read_only",
        "append": "read_only",
        "replace": "read_only",
        "make_folder": "read_only",
        "remove": "read_only",
        "rename": "read_only",
        "lock": "read_only",
    }
    assert sorted(bank.rglob("*")) == before
    bank.chmod(0o755)


async def test_one_file_is_never_reached_under_two_names(store: LocalFiles) -> None:
    """Whether this disk tells case and accents apart or not."""
    for one, two in (("progress.md", "Progress.md"), ("caf\u00e9.md", "cafe\u0301.md")):
        await store.write(one, b"one")
        assert await outcome(store.read(two)) == "not_found"
        if await outcome(store.write(two, b"two")) == "ok":
            assert await store.read(one) == b"one"
            assert await store.read(two) == b"two"
        else:
            assert two not in [info.path for info in await store.list()]


async def test_a_name_can_be_changed_in_its_case_alone(store: LocalFiles, tmp_path: Path) -> None:
    await store.write("Progress.md", b"x")
    await store.rename("Progress.md", "progress.md")
    assert names(tmp_path) == ["progress.md"]


async def test_two_links_to_one_file_are_two_files(store: LocalFiles, tmp_path: Path) -> None:
    await store.write("x.md", b"x")
    (tmp_path / "X.MD").hardlink_to(tmp_path / "x.md")
    with pytest.raises(Conflict):
        await store.rename("x.md", "X.MD")
    assert await store.read("x.md") == await store.read("X.MD") == b"x"


async def test_a_folder_that_was_put_in_the_place_of_another_is_used(store: LocalFiles, tmp_path: Path) -> None:
    inner = LocalFiles(tmp_path / "bank")
    await inner.write("x.md", b"one")
    await store.rename("bank", "old")
    await inner.write("x.md", b"two")
    assert await inner.read("x.md") == b"two"
    assert await store.read("old/x.md") == b"one"


async def test_a_folder_name_that_is_a_file_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    store = LocalFiles(tmp_path / "file")
    assert await outcome(store.write("x.md", b"")) == "conflict"
    assert await outcome(store.make_folder()) == "conflict"
    assert await outcome(store.list()) == "not_found"
    assert (tmp_path / "file").read_bytes() == b"x"
