"""Whatever is done to a folder in whatever order, its store and a plain dict agree."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound
from everkept.files.local_disk import is_working_file
from examples import examples
from file_stores import STORES, Filing, by_lease, filing, outcome
from processes import acting

EXAMPLES = {"local": 30}
FEWER = 10  # for a store whose every call is a conversation
PATHS = st.sampled_from(["x.md", "y.md", "a", "a/x.md", "a/b", "a/b/y.md", "b", "b/z.md"])
DATA = st.sampled_from([b"", b"one", b"two\n", b"long" * 5_000])
CRASHES = st.integers(1, 60)  # system calls or requests until the process dies; few take as many


class Model:
    """Files by path, and folders."""

    def __init__(self, files: dict[str, bytes], folders: set[str]) -> None:
        self.files, self.folders = files, folders

    def copy(self) -> "Model":
        return Model(dict(self.files), set(self.folders))

    def has(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def write(self, path: str, data: bytes) -> None:
        self._make_way(path)
        if path in self.folders:
            raise Conflict("")
        self.files[path] = data

    def append(self, path: str, data: bytes) -> None:
        self.write(path, self.files.get(path, b"") + data)

    def make_folder(self, path: str) -> None:
        self._make_way(path)
        if path in self.files:
            raise Conflict("")
        self.folders.add(path)

    def remove(self, path: str) -> None:
        for below in self._subtree(path):
            self.files.pop(below, None)
            self.folders.discard(below)

    def rename(self, path: str, to: str) -> None:
        if to.startswith(path + "/"):
            raise InvalidInput("")
        if not self.has(path):
            raise NotFound("file", path)
        self._check_way(to)
        if self.has(to):
            raise Conflict("")
        self._make_way(to)
        for below in self._subtree(path):
            moved = to + below.removeprefix(path)
            if below in self.files:
                self.files[moved] = self.files.pop(below)
            else:
                self.folders.remove(below)
                self.folders.add(moved)

    def entries(self, path: str) -> dict[str, bool]:
        if path and path not in self.folders:
            raise NotFound("folder", path)
        every = {**dict.fromkeys(self.files, False), **dict.fromkeys(self.folders, True)}
        return {p: every[p] for p in sorted(every) if p.rpartition("/")[0] == path}

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise NotFound("file", path)
        return self.files[path]

    def _subtree(self, path: str) -> list[str]:
        every = [*self.files, *self.folders]
        return [p for p in every if p == path or p.startswith(path + "/")]

    def _check_way(self, path: str) -> None:
        if any(above in self.files for above in _above(path)):
            raise Conflict("")

    def _make_way(self, path: str) -> None:
        self._check_way(path)
        self.folders.update(_above(path))


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _has_a_part(found: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes], path: str) -> bool:
    """Of what was appended, and all other files as they were."""
    if found.keys() != new.keys() or found | {path: b""} != new | {path: b""}:
        return False
    return found[path].startswith(old.get(path, b"")) and new[path].startswith(found[path])


class FileStoreMachine(RuleBasedStateMachine):
    """Two stores of one folder, and a process that dies in the middle of what it does."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._opened = AsyncExitStack()
        self.model = Model({}, set())
        self.filing: Filing = self._run(self._open(kind))
        self.stores = [self.filing.store, self._run(self.filing.another(by_lease()))]
        self.mortal = self._stack.enter_context(acting("file_actors:crash_when_told", self.filing.way))

    async def _open(self, kind: str) -> Filing:
        opened = await self._opened.enter_async_context(filing(kind, self._scratch))
        await opened.store.make_folder()
        return opened

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def teardown(self) -> None:
        self._run(self._opened.aclose())
        self._stack.close()

    def _change(self, store: int, name: str, *arguments: Any) -> None:
        """The store and the model come to the same, errors included."""
        self._expect(getattr(self.stores[store], name)(*arguments), name, *arguments)

    def _expect(self, call: Awaitable[object], name: str, *arguments: Any) -> None:
        changed = self.model.copy()
        expected = "ok"
        try:
            getattr(changed, name)(*arguments)
        except EverkeptError as error:
            expected = error.code
        else:
            self.model = changed
        assert self._run(outcome(call)) == expected

    @rule(store=st.integers(0, 1), path=PATHS, data=DATA)
    def write(self, store: int, path: str, data: bytes) -> None:
        self._change(store, "write", path, data)

    @rule(store=st.integers(0, 1), path=PATHS, data=DATA)
    def append(self, store: int, path: str, data: bytes) -> None:
        self._change(store, "append", path, data)

    @rule(store=st.integers(0, 1), path=PATHS)
    def remove(self, store: int, path: str) -> None:
        self._change(store, "remove", path)

    @rule(store=st.integers(0, 1), path=PATHS, to=PATHS)
    def rename(self, store: int, path: str, to: str) -> None:
        self._change(store, "rename", path, to)

    @rule(store=st.integers(0, 1), path=PATHS)
    def make_folder(self, store: int, path: str) -> None:
        self._change(store, "make_folder", path)

    @rule(store=st.integers(0, 1), path=PATHS, start=st.integers(0, 5))
    def read(self, store: int, path: str, start: int) -> None:
        async def read() -> bytes:
            return await self.stores[store].read(path, start=start)

        try:
            expected = self.model.read(path)[start:]
        except NotFound:
            assert self._run(outcome(read())) == "not_found"
        else:
            assert self._run(read()) == expected

    @rule(store=st.integers(0, 1), path=PATHS | st.just(""))
    def look_into(self, store: int, path: str) -> None:
        async def entries() -> dict[str, bool]:
            return {info.path: info.is_folder for info in await self.stores[store].list(path)}

        try:
            expected = self.model.entries(path)
        except NotFound:
            assert self._run(outcome(entries())) == "not_found"
        else:
            assert self._run(entries()) == expected

    @rule(store=st.integers(0, 1), path=PATHS, data=DATA)
    def write_under_the_lock(self, store: int, path: str, data: bytes) -> None:
        async def locked(work: Awaitable[str]) -> str:
            async with self.stores[store].lock("bank"):
                assert await self.stores[1 - store].list() is not None
                return await work

        before = self.model.copy()
        try:
            self.model.write(path, data)
        except EverkeptError as error:
            self.model, expected = before, error.code
        else:
            expected = "ok"
        call = outcome(self.stores[store].write(path, data))
        assert self._run(locked(call)) == expected

    @rule(store=st.integers(0, 1), path=PATHS, data=DATA)
    def run_a_write_under_the_lock(self, store: int, path: str, data: bytes) -> None:
        async def locked(path: str, data: bytes) -> None:
            await self.stores[store].run_locked("bank", lambda: self.stores[store].write(path, data))

        self._expect(locked(path, data), "write", path, data)

    @rule(path=PATHS, data=DATA, at=CRASHES, heir=st.integers(0, 1))
    def crash_in_a_write(self, path: str, data: bytes, at: int, heir: int) -> None:
        told = {"path": path, "data": data.decode()}
        self._crash("write", told, at, heir, path, data)

    @rule(path=PATHS, data=DATA, at=CRASHES, heir=st.integers(0, 1))
    def crash_in_an_append(self, path: str, data: bytes, at: int, heir: int) -> None:
        told = {"path": path, "data": data.decode()}
        self._crash("append", told, at, heir, path, data)

    @rule(path=PATHS, at=CRASHES, heir=st.integers(0, 1))
    def crash_in_a_removal(self, path: str, at: int, heir: int) -> None:
        self._crash("remove", {"path": path}, at, heir, path)

    @rule(path=PATHS, to=PATHS, at=CRASHES, heir=st.integers(0, 1))
    def crash_in_a_rename(self, path: str, to: str, at: int, heir: int) -> None:
        self._crash("rename", {"path": path, "to": to}, at, heir, path, to)

    def _crash(self, name: str, told: dict[str, str], at: int, heir: int, *arguments: Any) -> None:
        """Then there is the old or the new; folders for the new may be there without it."""
        changed = self.model.copy()
        try:
            getattr(changed, name)(*arguments)
        except EverkeptError:
            changed = self.model
        # Beside it, since the server that it asks may be in this process.
        self._run(asyncio.to_thread(self.mortal.ask, json.dumps([name, told, at])))
        self._run(self._take_over(heir))
        files, folders = self._on_disk()
        whole = (self.model.files, changed.files)
        assert files in whole or (name == "append" and _has_a_part(files, *whole, arguments[0]))
        router = [self.model.folders, changed.folders]
        assert router[0] & router[1] <= folders <= router[0] | router[1]
        self.model = Model(files, folders)

    async def _take_over(self, heir: int) -> None:
        async with self.stores[heir].lock("bank"):
            pass

    @invariant()
    def the_folder_is_as_the_model(self) -> None:
        assert self._on_disk() == (self.model.files, self.model.folders)

    def _on_disk(self) -> tuple[dict[str, bytes], set[str]]:
        root = self.filing.folder
        every = {path.relative_to(root): path for path in root.rglob("*")}
        shown = {
            relative.as_posix(): path
            for relative, path in every.items()
            if not any(is_working_file(part) for part in relative.parts)
        }
        files = {name: path.read_bytes() for name, path in shown.items() if path.is_file()}
        return files, {name for name, path in shown.items() if path.is_dir()}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_and_a_dict_agree_though_processes_die(kind: str) -> None:
    count = examples(EXAMPLES.get(kind, FEWER))
    chosen = settings(max_examples=count, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(lambda: FileStoreMachine(kind), settings=chosen)
