"""Contenders for one lock whose every step is taken when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import count

from everkept.files.lease_lock import FolderLocks, LockTerms

ROUNDS = 2  # how often each contender takes the lock
LEASE = 30.0
DEAD = 99  # the number of a process that ended before
FIRST = ".everkept-bank.lock"
PASSES = 12  # in which all that live must have had their turns
STEPS = 200  # until a contender has its turns or waits for another


@dataclass(slots=True, eq=False)
class File:
    content: bytes
    stamp: int


class SteppedFiles:
    """Implements LockFiles with no more atomicity than a server far away gives."""

    def __init__(self, files: dict[str, File], step: Callable[[], Awaitable[None]], stamps: "count[int]") -> None:
        self._files, self._step, self._stamps = files, step, stamps

    async def create(self, name: str, content: bytes) -> bool:
        await self._step()
        if name in self._files:
            return False
        made = self._files[name] = File(b"", next(self._stamps))
        await self._step()
        made.content = content
        return True

    async def read(self, name: str) -> tuple[bytes, int] | None:
        await self._step()
        found = self._files.get(name)
        return (found.content, found.stamp) if found else None

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        await self._step()
        found = self._files.get(name)
        if found is None or mark not in found.content:
            return False
        await self._step()
        found.content = content
        return True

    async def remove(self, name: str, mark: bytes) -> bool:
        await self._step()
        found = self._files.get(name)
        if found is None or mark not in found.content:
            return False
        await self._step()
        return self._files.pop(name, None) is not None


class Never:
    """A timer that does not go off."""

    def cancel(self) -> None: ...


class Contender:
    """Takes the lock, and lets go, a step at a time; it may die between two steps."""

    def __init__(self, number: int, contention: "Contention") -> None:
        self.pid = 100 + number
        self.knows_dead = {DEAD}
        self.is_dead = False
        self.is_inside = False
        self.sleeps = False
        self._contention = contention
        self._turn: asyncio.Future[None] | None = None
        self._waits = asyncio.Event()
        terms = LockTerms(
            lease=LEASE,
            patience=float("inf"),
            now=lambda: 1_000_000_000,
            elapsed=lambda: contention.elapsed,
            sleep=self._sleep,
            call_later=lambda *_: Never(),  # time stands while a lock is held
            pid=lambda: self.pid,
            is_running=lambda pid: pid not in self.knows_dead,
        )
        files = SteppedFiles(contention.files, self._step, contention.stamps)
        self._locks = FolderLocks(files, "", terms)
        self.task = asyncio.create_task(self._contend())
        self.task.add_done_callback(lambda _: self._waits.set())

    @property
    def is_done(self) -> bool:
        return self.task.done()

    async def advance(self) -> None:
        """One step further, until the next one waits to be taken."""
        await self.settle()
        if self._turn is not None and not self.is_done:
            self._waits.clear()
            self._turn.set_result(None)
            await self.settle()

    def stop(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
        self.task.cancel()

    async def settle(self) -> None:
        await self._waits.wait()

    async def _contend(self) -> None:
        for _ in range(ROUNDS):
            async with self._locks.lock("bank"):
                self.is_inside = True
                await self._step()
                self._contention.check()
                await self._step()
                self.is_inside = False

    async def _step(self) -> None:
        if self._contention.is_over:
            await asyncio.sleep(0)
            return
        self._contention.check()
        self._turn = asyncio.get_running_loop().create_future()
        self._waits.set()
        await self._turn

    async def _sleep(self, _: float) -> None:
        self.sleeps = True
        await self._step()
        self.sleeps = False


class Contention:
    """Several contenders, of whom no two that live may be inside at once."""

    def __init__(self, contenders: int) -> None:
        self.files: dict[str, File] = {}
        self.stamps = count(1)
        self.elapsed = 0.0
        self.is_over = False
        self.number = contenders
        self.contenders: list[Contender] = []

    async def run(self, actions: Iterable[tuple[str, int, int]], *, left_by_dead: bytes) -> None:
        """Does each of `actions`: what, by whom, how often. A dead holder has the lock at first."""
        self.files[FIRST] = File(left_by_dead, next(self.stamps))
        self.contenders = [Contender(number, self) for number in range(self.number)]
        try:
            for kind, number, times in actions:
                for _ in range(times):
                    await self._act(kind, self.contenders[number])
            await self._finish()
        finally:
            self.is_over = True  # what is cancelled cleans up, and takes no turns for that
            for contender in self.contenders:
                contender.stop()
            await asyncio.gather(*(c.task for c in self.contenders), return_exceptions=True)

    def check(self) -> None:
        inside = [c.pid for c in self.contenders if c.is_inside and not c.is_dead]
        assert len(inside) <= 1, inside

    async def _act(self, kind: str, contender: Contender) -> None:
        if contender.is_dead:
            return
        if kind == "step":
            await contender.advance()
        elif kind == "learn":  # each finds out in its own time
            contender.knows_dead |= {c.pid for c in self.contenders if c.is_dead}
        elif any(not c.is_dead for c in self.contenders if c is not contender):
            await contender.settle()
            contender.is_dead = True

    async def _finish(self) -> None:
        """All that live come to their turns, whoever died and wherever."""
        living = [contender for contender in self.contenders if not contender.is_dead]
        for contender in living:
            await self._act("learn", contender)
        for _ in range(PASSES):
            for contender in living:
                await self._until_it_sleeps(contender)
            # All sleep, so none of them holds: who died before it said who it is loses its lease.
            self.elapsed += LEASE
        for contender in living:
            assert contender.is_done
            contender.task.result()
        assert len(living) < len(self.contenders) or FIRST not in self.files

    async def _until_it_sleeps(self, contender: Contender) -> None:
        for _ in range(STEPS):
            await contender.advance()
            if contender.sleeps or contender.is_done:
                return
        raise AssertionError("it went on and on")
