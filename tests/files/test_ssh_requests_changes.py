"""What a process leaves on a server when it dies before any of its requests."""

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from everkept.core.files import FileStore
from file_stores import REMOTE, Filing, by_lease, filing
from processes import Actor, acting

Tree = dict[str, bytes | None]  # folders are None

OLD, NEW = b"old" * 1000, b"new" * 2000
BEFORE: Tree = {"full": None, "full/below": None, "full/below/z.md": OLD, "x.md": OLD}
WITHOUT_X: Tree = {path: data for path, data in BEFORE.items() if path != "x.md"}
DEEP: Tree = {"deep": None, "deep/er": None}

pytestmark = pytest.mark.parametrize("kind", REMOTE)


CHANGES = {
    "write": ("write", {"path": "x.md", "data": NEW.decode()}, [BEFORE | {"x.md": NEW}]),
    "write a new one": (
        "write",
        {"path": "deep/er/y.md", "data": NEW.decode()},
        [BEFORE | {"deep": None}, BEFORE | DEEP, BEFORE | DEEP | {"deep/er/y.md": NEW}],
    ),
    "append": ("append", {"path": "x.md", "data": NEW.decode()}, [BEFORE | {"x.md": OLD + NEW}]),
    # What is appended may be there in part: here the file alone.
    "append to a new one": (
        "append",
        {"path": "y.md", "data": NEW.decode()},
        [BEFORE | {"y.md": b""}, BEFORE | {"y.md": NEW}],
    ),
    "rename": ("rename", {"path": "x.md", "to": "y.md"}, [WITHOUT_X | {"y.md": OLD}]),
    "rename into a new folder": (
        "rename",
        {"path": "x.md", "to": "deep/er/y.md"},
        [BEFORE | {"deep": None}, BEFORE | DEEP, WITHOUT_X | DEEP | {"deep/er/y.md": OLD}],
    ),
    "remove a file": ("remove", {"path": "x.md"}, [WITHOUT_X]),
    "remove a folder": ("remove", {"path": "full"}, [{"x.md": OLD}]),
}
# One that makes a file and one that takes files away; each takes seconds.
QUICK = {"write", "remove a file"}


def parameter(name: str) -> Any:
    marks = [] if name in QUICK else [pytest.mark.thorough]
    return pytest.param(*CHANGES[name], marks=marks, id=name)


@pytest.mark.parametrize(("name", "told", "stages"), [parameter(name) for name in CHANGES])
async def test_a_process_that_dies_before_any_request_leaves_the_old_or_the_new(
    kind: str, tmp_path: Path, name: str, told: dict[str, str], stages: list[Tree]
) -> None:
    async with filing(kind, tmp_path) as files:
        with acting("file_actors:crash_when_told", files.way) as mortal:
            found = await found_after_each_death(files, mortal, name, told)
    allowed = [BEFORE, *stages]
    assert len(found) > 15
    assert [tree for tree in found if tree not in allowed] == []
    reached = [allowed.index(tree) for tree in found]
    assert reached == sorted(reached)
    assert set(reached) == set(range(len(allowed)))


async def found_after_each_death(files: Filing, mortal: Actor, name: str, told: dict[str, str]) -> list[Tree]:
    """What each heir finds under the lock that the dead held; the last of them died of nothing."""
    heirs = [files.store, await files.another(by_lease())]
    found: list[Tree] = []
    for request in itertools.count(1):
        lay_out(files.folder)
        # Beside the test, since the server may be in this process.
        died = await asyncio.to_thread(mortal.ask, json.dumps([name, told, request]))
        found.append(await inherited(heirs[request % 2]))
        if not died:
            return found
    raise AssertionError("unreachable")


async def inherited(store: FileStore) -> Tree:
    async with store.lock("bank"):
        return await tree_of(store)


async def tree_of(store: FileStore, folder: str = "") -> Tree:
    tree: Tree = {}
    for info in await store.list(folder):
        if info.is_folder:
            tree |= {info.path: None, **await tree_of(store, info.path)}
        else:
            tree[info.path] = await store.read(info.path)
    return tree


def lay_out(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, data in BEFORE.items():
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)
