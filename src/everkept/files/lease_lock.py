"""Locks between processes and machines: exclusively created files with owner and lease.

A lock is a chain of claims. The file of the first claim is `.everkept-<name>.lock`. A process that takes over from a
dead holder does not touch that file, but creates the next claim. Its file is named after the token of the claim before.
The last claim of the chain holds the lock.

Why that is safe, however slowly each contender moves from one step to the next:

1. Only an exclusive create makes a claim, so only one of several successors of a holder succeeds.
2. A token is never used twice, so the file that follows a claim is unique as long as it exists.
3. A holder releases the lock by removing the first file before all others. A slow contender may still
   create a claim after one that is gone. It therefore reads the chain again from its first file. That
   file is missing or has another token, so the contender withdraws.
4. Only the holder removes the first file, so no new chain begins while the lock is held.

Removing or renaming a dead holder's file instead would break rule 3. Another process may have taken over between the
check and the removal, and its live lock would be removed.

A lock file cannot protect a holder that sleeps past its lease, such as a closed laptop: it wakes up without the lock.
So a lease is renewed in time, and `ensure_held` runs before each change under a lock. It refuses once the lease is
lost.
"""

import asyncio
import json
import logging
import os
import random
import re
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, Protocol, TypeVar, cast

from everkept.core import times
from everkept.core.files import FileWork
from everkept.core.runtime import run_without_loop, wait_finished
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, Refused, StoreBusy, escape_name
from everkept.files.local_disk import LOCK_NAME, build_lock_name, get_machine_id, is_running, run_in_thread
from everkept.values import Value

T = TypeVar("T")
log = logging.getLogger(__name__)

_SECOND_MICROSECONDS = 1_000_000
_RENEWALS_PER_LEASE = 3  # so that one may fail
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, _PAUSE_GROWTH = 0.001, 0.02, 1.5
_CLOCK_SKEW_SECONDS = 300.0  # by which the clocks of two machines may differ
_MAX_CLAIMS = 200  # of a chain; a repository can come with more
_TOKEN = re.compile(r"[0-9a-f]{32}")


class LockFiles(Protocol):
    """The steps of a lock, each on one file of the folder. Names have no slash."""

    async def create(self, name: str, content: bytes) -> bool:
        """Create the file and its folder. Return False if the file exists. It may be empty for a moment.

        If this raises, the file does not exist. If it is canceled, it has finished.
        """
        ...

    async def read(self, name: str) -> tuple[bytes, int] | None:
        """Return content and modification time, in any unit, or None if the file does not exist."""
        ...

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        """Overwrite the file in place with as many bytes. Return False if `mark` is not in it.

        One handle is used to check and to write, so that both see the same file.
        """
        ...

    async def remove(self, name: str, mark: bytes) -> bool:
        """Remove the file. Return False if `mark` is not in it."""
        ...


class LeaseTimer(Protocol):
    """A scheduled call that can be canceled."""

    def cancel(self) -> None: ...


def _call_later(seconds: float, function: Callable[[], None]) -> LeaseTimer:
    return asyncio.get_running_loop().call_later(seconds, function)


class LockTerms(Value):
    """Seconds that a lock lasts and is waited for, and the clock, timers and processes around it."""

    lease: float = 30.0
    patience: float = 20.0
    now: Clock = times.read_clock
    elapsed: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    call_later: Callable[[float, Callable[[], None]], LeaseTimer] = _call_later
    pid: Callable[[], int] = os.getpid
    is_running: Callable[[int], bool] = is_running


class LockClaim(Value):
    """A claim to a lock. If its file is unreadable, owner and end are None."""

    file: str
    content: bytes
    token: str
    machine: str | None = None
    pid: int | None = None
    until: int | None = None

    @property
    def owner(self) -> str:
        if self.machine is None:
            return "an unknown process"
        return f"process {self.pid} on {escape_name(self.machine.partition('/')[0])}"


def parse_claim(file: str, content: bytes, modified_at: int) -> LockClaim:
    try:
        said = cast("dict[str, Any]", json.loads(content))
        machine, pid, token, until = (said[key] for key in ("machine", "pid", "token", "until"))
        if _TOKEN.fullmatch(token):
            return LockClaim(file, content, token, str(machine), int(pid), int(until))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    # Its process has not written yet, or died before that. The time distinguishes it from later files of this kind.
    return LockClaim(file, content, f"{modified_at:x}")


def compute_watch_seconds(until: int | None, now: int, lease: float) -> float:
    """Return how many seconds a claim must stay unchanged before its holder counts as dead.

    Clocks of two machines differ, so the end that a holder wrote is not enough: a live holder would renew it in that
    time. An end that is long past is trusted. No holder writes one far ahead: a clock jumped, or a repository came with
    the file. A holder that needs longer to write its claim renews it before its first change, and sees its successor.
    """
    skew = _CLOCK_SKEW_SECONDS * _SECOND_MICROSECONDS
    if until is None:
        return lease / 2
    if now < until <= now + lease * _SECOND_MICROSECONDS + skew:
        return lease
    return lease / _RENEWALS_PER_LEASE if now < until + skew else 0.0


class LockLease:
    """A held lock, after `hold`. It is created on the event loop, which renews it.

    The work under the lock may run in a thread. That thread also ends the lease, unless a renewal has begun.
    """

    def __init__(self, files: LockFiles, name: str, terms: LockTerms) -> None:
        self._files, self._name, self._terms = files, name, terms
        self._chain: tuple[LockClaim, ...] = ()
        self._until = 0
        self._ended = False
        self._lost = False
        self.taker = asyncio.current_task()
        self._timer = self._set_timer()
        self._renewal: asyncio.Task[None] | None = None
        self._first = threading.Lock()  # taken by a renewal or by the end in a thread, whichever is first

    @property
    def is_held(self) -> bool:
        return bool(self._chain) and not self._ended

    def hold(self, chain: tuple[LockClaim, ...]) -> None:
        self._until = chain[-1].until or 0
        self._chain = chain

    def cancel_timer(self) -> None:
        self._timer.cancel()

    async def ensure_held(self) -> None:
        """Raise StoreBusy if the lock is lost. Read the folder only if a renewal is late."""
        if self._ended:
            return
        half = int(self._terms.lease / 2 * _SECOND_MICROSECONDS)
        if not self._lost and self._terms.now() >= self._until - half:
            await self._renew()
        if self._lost:
            raise StoreBusy(
                f'The lock "{self._name}" was lost: it was not renewed for {self._terms.lease:g} seconds. '
                "Another process may have written since then.",
                hint="Read the files again, and repeat the change.",
                lock=self._name,
            )

    async def end(self) -> None:
        """Release the lock. Raise StoreBusy if the lease ended before the work did."""
        self.cancel_timer()
        if self._renewal is not None:
            await self._renewal
            self.cancel_timer()
        await self._release()

    async def end_in_thread(self) -> None:
        """Release the lock in a thread. If a renewal has begun, the event loop releases it instead."""
        if self._first.acquire(blocking=False):
            await self._release()

    async def _release(self) -> None:
        try:
            if self._terms.now() >= self._until:
                await self.ensure_held()
        finally:
            self._ended = True
            if not self._lost:
                await self._remove()

    async def _remove(self) -> None:
        try:
            for claim in self._chain:  # the first file first, see rule 3 above
                await self._files.remove(claim.file, _get_mark(claim))
        except EverkeptError as error:
            # The work is done, so it must not be reported as failed.
            log.warning("lock %s was not removed and will expire: %s", self._name, error)

    def _set_timer(self) -> LeaseTimer:
        # Most locks are released long before, and a timer is cheaper than a waiting task.
        return self._terms.call_later(self._terms.lease / _RENEWALS_PER_LEASE, self._begin_renewal)

    def _begin_renewal(self) -> None:
        if not self._chain:
            self._timer = self._set_timer()
        elif self._renewal is not None or self._first.acquire(blocking=False):
            self._renewal = asyncio.create_task(self._keep_renewing())

    async def _keep_renewing(self) -> None:
        with suppress(EverkeptError):  # tried again later; `ensure_held` raises if it is too late
            await self._renew()
        if not self._lost:
            self._timer = self._set_timer()

    async def _renew(self) -> None:
        claim = self._chain[-1]
        content, until = _encode_claim(claim.token, self._terms)
        rewritten = await self._files.rewrite(claim.file, _get_mark(claim), content)
        if not rewritten or await self._files.read(build_lock_name(self._name, claim.token)):
            self._lost = True
        else:
            self._until = until


_held_locks: ContextVar[tuple[tuple["FolderLocks", str, LockLease], ...]] = ContextVar("held", default=())


class _LockTaken(Exception):
    """Raised if another process holds the lock."""


class FolderLocks:
    """The locks of one folder. Tasks of this process get a lock in the order they asked for it."""

    def __init__(self, files: LockFiles, address: str, terms: LockTerms = LockTerms()) -> None:  # noqa: B008 (frozen)
        self._files, self._address, self._terms = files, address, terms
        self._gates: dict[str, asyncio.Lock] = {}
        self._watched: dict[str, tuple[bytes, float]] = {}

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        _check_name(name)
        return self._hold_lock(name)

    async def ensure_held(self) -> None:
        """Raise StoreBusy if the caller has lost a lock of this folder that it still uses."""
        for locks, _, lease in _held_locks.get():
            if locks is self:
                await lease.ensure_held()

    async def run_in_thread(self, name: str, work: FileWork[T], undo: FileWork[None] | None) -> T:
        """Run `work` under a lock, and `undo` if the caller is canceled before its end.

        One call into a thread takes the lock, works and releases it. The event loop waits only if another process holds
        the lock. The steps of LockFiles must not need that loop.
        """
        _check_name(name)
        canceled = threading.Event()

        async def do() -> T:
            done = await work()
            if undo is not None and canceled.is_set():
                await undo()
            return done

        async with self._wait_turn(name) as lease:
            context = copy_context()  # includes the caller's other locks
            free = self._run_if_free(name, lease, do)
            try:
                return await run_in_thread(lambda: context.run(run_without_loop, free), on_cancel=canceled.set)
            except _LockTaken:
                self._hold(lease, await self._acquire(name))
            held = self._run_held(name, lease, do)
            return await run_in_thread(lambda: context.run(run_without_loop, held), on_cancel=canceled.set)

    async def _run_if_free(self, name: str, lease: LockLease, work: FileWork[T]) -> T:
        chain = await self._try_begin(name, secrets.token_hex(16))
        if chain is None:
            raise _LockTaken
        self._hold(lease, chain)
        try:
            return await self._run_held(name, lease, work)
        finally:
            await lease.end_in_thread()

    async def _run_held(self, name: str, lease: LockLease, work: FileWork[T]) -> T:
        _held_locks.set((*_held_locks.get(), (self, name, lease)))  # in the copied context of one thread call
        return await work()

    @asynccontextmanager
    async def _hold_lock(self, name: str) -> AsyncGenerator[None, None]:
        async with self._wait_turn(name) as lease:
            self._hold(lease, await self._acquire(name))
            before = _held_locks.set((*_held_locks.get(), (self, name, lease)))
            try:
                yield
            finally:
                _held_locks.reset(before)

    @asynccontextmanager
    async def _wait_turn(self, name: str) -> AsyncGenerator[LockLease, None]:
        """Yield a lease that is not held yet, after all earlier tasks have ended theirs."""
        self._refuse_twice(name)
        gate = self._gates.setdefault(name, asyncio.Lock())
        await self._pass_gate(gate, name)
        try:
            lease = LockLease(self._files, name, self._terms)
            try:
                yield lease
            finally:
                lease.cancel_timer()
                if lease.is_held:
                    await wait_finished(lease.end())
        finally:
            gate.release()

    def _refuse_twice(self, name: str) -> None:
        # It would wait for itself until the timeout.
        for locks, held, lease in _held_locks.get():
            if locks is self and held == name and lease.taker is asyncio.current_task():
                raise RuntimeError(f"this task already holds the lock {name}")

    async def _pass_gate(self, gate: asyncio.Lock, name: str) -> None:
        try:
            async with asyncio.timeout(self._terms.patience):
                await gate.acquire()
        except TimeoutError:
            raise self._build_busy_error(name, "another call of this server") from None

    async def _acquire(self, name: str) -> tuple[LockClaim, ...]:
        deadline = self._terms.elapsed() + self._terms.patience
        token = secrets.token_hex(16)
        pauses = _iterate_pauses()
        while True:
            if chain := await self._try_begin(name, token):
                return chain
            found = await self._read_chain(name)
            if found and self._is_over(found[-1]):
                if chain := await self._try_continue(name, found, token):
                    return chain
                token = secrets.token_hex(16)
            elif self._terms.elapsed() >= deadline:
                raise self._build_busy_error(name, found[-1].owner if found else "several processes in turn")
            await self._terms.sleep(next(pauses))

    def _hold(self, lease: LockLease, chain: tuple[LockClaim, ...]) -> None:
        for claim in chain:
            self._watched.pop(claim.file, None)
        lease.hold(chain)

    async def _try_begin(self, name: str, token: str) -> tuple[LockClaim, ...] | None:
        claim = _build_claim(build_lock_name(name), token, self._terms)
        return (claim,) if await self._create_claim(claim) else None

    async def _try_continue(self, name: str, chain: tuple[LockClaim, ...], token: str) -> tuple[LockClaim, ...] | None:
        claim = _build_claim(build_lock_name(name, chain[-1].token), token, self._terms)
        if not await self._create_claim(claim):
            return None
        extended: tuple[LockClaim, ...] = ()
        wanted = [*(before.token for before in chain), token]
        try:
            extended = await self._read_chain(name)
        finally:
            holds = [found.token for found in extended] == wanted
            if not holds:
                await wait_finished(self._files.remove(claim.file, _get_mark(claim)))
        return extended if holds else None

    async def _create_claim(self, claim: LockClaim) -> bool:
        try:
            return await self._files.create(claim.file, claim.content)
        except asyncio.CancelledError:
            await wait_finished(self._files.remove(claim.file, _get_mark(claim)))
            raise

    async def _read_chain(self, name: str) -> tuple[LockClaim, ...]:
        """Return the claims from the first to the one that holds the lock, or to the last expired one."""
        chain: list[LockClaim] = []
        file = build_lock_name(name)
        while found := await self._files.read(file):
            claim = parse_claim(file, *found)
            chain.append(claim)
            if not self._is_over(claim):
                break
            if len(chain) > _MAX_CLAIMS:  # such a chain can lead in a circle
                raise Refused(
                    f'The lock "{name}" of {self._address} has more than {_MAX_CLAIMS} files of dead processes.',
                    hint=f"Delete the files .everkept-{name}.*lock in that folder, then try again.",
                    lock=name,
                )
            file = build_lock_name(name, claim.token)
        return tuple(chain)

    def _is_over(self, claim: LockClaim) -> bool:
        elapsed = self._terms.elapsed()
        content, since = self._watched.get(claim.file, (None, elapsed))
        if content != claim.content:
            since = elapsed
            self._watched[claim.file] = (claim.content, since)
        needed = compute_watch_seconds(claim.until, self._terms.now(), self._terms.lease)
        return self._has_died(claim) or elapsed - since >= needed

    def _has_died(self, claim: LockClaim) -> bool:
        """Return whether the holder is a dead process of this machine. A reused process id is caught by the lease."""
        if claim.pid is None or claim.machine != get_machine_id():
            return False
        return not self._terms.is_running(claim.pid)

    def _build_busy_error(self, name: str, holder: str) -> StoreBusy:
        return StoreBusy(
            f'The lock "{name}" of {self._address} is held by {holder}; waited {self._terms.patience:g} seconds.',
            hint=f"Try again. The lock of a dead process expires after {self._terms.lease:g} seconds.",
            lock=name,
            holder=holder,
        )


def _check_name(name: str) -> None:
    if not LOCK_NAME.fullmatch(name):
        raise InvalidInput(f'Invalid lock name "{name}": it must be 1 to 40 of a-z, 0-9 and -.')


def _build_claim(file: str, token: str, terms: LockTerms) -> LockClaim:
    content, until = _encode_claim(token, terms)
    return LockClaim(file, content, token, get_machine_id(), terms.pid(), until)


def _encode_claim(token: str, terms: LockTerms) -> tuple[bytes, int]:
    """Encode a claim. The length is constant for one token, because a renewal overwrites it in place."""
    until = terms.now() + int(terms.lease * _SECOND_MICROSECONDS)
    said = {"machine": get_machine_id(), "pid": terms.pid(), "token": token, "until": f"{until:020}"}
    return json.dumps(said).encode(), until


def _get_mark(claim: LockClaim) -> bytes:
    """Return bytes that only this claim has, or b"" if its process died before writing."""
    return claim.token.encode() if claim.machine is not None else b""


def _iterate_pauses() -> Iterator[float]:
    """Yield pauses, short at first because most locks are held for a millisecond."""
    longest = _FIRST_PAUSE_SECONDS
    while True:
        yield longest * (0.5 + random.random() / 2)
        longest = min(longest * _PAUSE_GROWTH, _MAX_PAUSE_SECONDS)
