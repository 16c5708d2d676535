"""No program that we start, and none that it starts, is left when we are gone."""

import asyncio
import os
import signal

import psutil
import pytest

from processes import acting
from upstreaming import PATIENCE, PROGRAM, gone, lives, pid_of, started, until

ENDS = pytest.mark.parametrize(
    "options", [(), ("--stays",), ("--stays", "--apart")], ids=["ends", "stays", "apart"]
)


ROUNDS = 8


def our_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@ENDS
async def test_a_program_and_what_it_has_started_end_with_the_upstream(
    options: tuple[str, ...],
) -> None:
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
    with acting("upstreaming:hold", *options) as holder:
        pids = holder.hear()
        watchdogs = {child.pid for child in psutil.Process(holder.process.pid).children()}
        assert watchdogs >= {pids[0]}
        assert all(map(lives, pids))
        holder.process.kill()
        holder.process.wait(PATIENCE)
        await gone(*pids, *watchdogs)


async def test_it_ends_when_we_are_killed_while_it_begins() -> None:
    programs: set[int] = set()
    for _ in range(ROUNDS):
        with acting("upstreaming:begin", "--stays", "--silent") as holder:
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
