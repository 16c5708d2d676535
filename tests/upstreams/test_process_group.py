"""No program that we start, and none that it starts, is left when we are gone."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from everkept.upstreams.process_group import ChildProcess
from processes import acting
from upstreams import PATIENCE, PROGRAM, gone, lives, pid_of, started, until

ENDS = pytest.mark.parametrize("options", [(), ("--stays",), ("--stays", "--apart")], ids=["ends", "stays", "apart"])


ROUNDS_OF_ENDS = 8


def our_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@ENDS
async def test_a_program_and_what_it_has_started_end_with_the_upstream(options: tuple[str, ...]) -> None:
    before = our_children()
    async with started(*options) as upstream:
        pids = [await pid_of(upstream), await pid_of(upstream, "spawn")]
        assert all(map(lives, pids))
        async with asyncio.timeout(PATIENCE):
            await upstream.close()
        await gone(*pids)
    assert our_children() <= before  # nor a watchdog


@ENDS
async def test_they_end_when_we_are_killed(options: tuple[str, ...]) -> None:
    with acting("upstreams:hold", *options) as holder:
        pids = holder.hear()
        watchdogs = {child.pid for child in psutil.Process(holder.process.pid).children()}
        assert watchdogs >= {pids[0]}
        assert all(map(lives, pids))
        holder.process.kill()
        holder.process.wait(PATIENCE)
        await gone(*pids, *watchdogs)


async def test_it_ends_when_we_are_killed_while_it_begins() -> None:
    programs: set[int] = set()
    for _ in range(ROUNDS_OF_ENDS):
        with acting("upstreams:begin", "--stays", "--silent") as holder:
            process = psutil.Process(holder.process.pid)
            begun: set[int] = set()
            async with asyncio.timeout(PATIENCE):
                while not begun:  # without a pause: the moment is short
                    begun = {child.pid for child in process.children() if is_program(child)}
                    await asyncio.sleep(0)
            holder.process.kill()
            programs |= begun
    await gone(*programs)


def is_program(process: psutil.Process) -> bool:
    try:
        return PROGRAM in process.cmdline()
    except psutil.NoSuchProcess:
        return False


async def test_what_a_program_has_started_ends_when_the_program_crashes() -> None:
    before = our_children()
    async with started() as upstream:
        pid, left = await pid_of(upstream), await pid_of(upstream, "spawn")
        os.kill(pid, signal.SIGTERM)
        # What it has started still holds its output, and that it is gone is seen nevertheless.
        await gone(pid, left)
        assert await pid_of(upstream) != pid
    assert our_children() <= before


async def test_a_start_that_is_given_up_leaves_nothing() -> None:
    before = our_children()
    async with started("--silent", "--stays") as upstream:
        upstream.start()
        await until(lambda: our_children() > before)
        new = our_children() - before
        await upstream.close()
        await gone(*new)


PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
COMMAND = (sys.executable, "-ISc", "input()")
ROUNDS = 40


async def ended(process: ChildProcess) -> None:
    async with asyncio.timeout(PATIENCE):
        await process.exited.wait()
    await asyncio.sleep(0)


async def test_the_end_of_a_process_that_was_let_go_just_then_is_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(ROUNDS):
        process = ChildProcess()
        await process.start(*COMMAND, **PIPES)
        system = psutil.Process(process.pid)
        os.kill(process.pid, signal.SIGTERM)
        while is_running(system):  # without a turn of the loop: it does not know yet
            pass
        process.release()
        await ended(process)
    assert caplog.messages == []


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_process_that_is_let_go_loses_its_input() -> None:
    process = ChildProcess()
    await process.start(*COMMAND, **PIPES)
    process.release()
    await ended(process)
    await gone(process.pid)
    process.release()


@pytest.mark.parametrize("turns", [1, 2])  # of the loop
async def test_a_start_that_is_cancelled_is_known_to_have_begun(turns: int) -> None:
    process = ChildProcess()
    starting = asyncio.create_task(process.start(*COMMAND, **PIPES))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert process.pid
    process.release()
    await ended(process)


async def test_what_cannot_be_started_is_raised() -> None:
    process = ChildProcess()
    with pytest.raises(OSError, match="no-such-program"):
        await process.start("no-such-program", **PIPES)
    process.release()
    assert not process.pid
