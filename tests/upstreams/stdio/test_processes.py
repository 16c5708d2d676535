"""Processes begin, end and are let go, at any moment."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from everkept.upstreams.stdio.processes import Process
from upstreaming import PATIENCE, gone

PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
COMMAND = (sys.executable, "-ISc", "input()")
ROUNDS = 40


async def ended(process: Process) -> None:
    async with asyncio.timeout(PATIENCE):
        await process.exited.wait()
    await asyncio.sleep(0)


async def test_the_end_of_a_process_that_was_let_go_just_then_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(ROUNDS):
        process = Process()
        await process.start(*COMMAND, **PIPES)
        system = psutil.Process(process.pid)
        os.kill(process.pid, signal.SIGTERM)
        while is_running(system):  # without a turn of the loop: it does not know yet
            pass
        process.let_go()
        await ended(process)
    assert caplog.messages == []


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_process_that_is_let_go_loses_its_input() -> None:
    process = Process()
    await process.start(*COMMAND, **PIPES)
    process.let_go()
    await ended(process)
    await gone(process.pid)
    process.let_go()


@pytest.mark.parametrize("turns", [1, 2])  # of the loop
async def test_a_start_that_is_cancelled_is_known_to_have_begun(turns: int) -> None:
    process = Process()
    starting = asyncio.create_task(process.start(*COMMAND, **PIPES))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert process.pid
    process.let_go()
    await ended(process)


async def test_what_cannot_be_started_is_raised() -> None:
    process = Process()
    with pytest.raises(OSError, match="no-such-program"):
        await process.start("no-such-program", **PIPES)
    process.let_go()
    assert not process.pid
