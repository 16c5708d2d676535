"""Other servers for as long as a command asks them, and nothing of them left behind."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import click

from everkept.core.upstreams import Reach, Upstream
from everkept.settings import Settings, upstream_environment
from everkept.upstreams.upstream import open_upstream

T = TypeVar("T")

PATIENCE = 5.0  # seconds of silence; the first start of a package may take a minute
LOGS = [logging.getLogger(name) for name in ("everkept.upstreams", "everkept.app.gateway")]


@contextmanager
def told_once(settings: Settings) -> Generator[None, None, None]:
    """Why a server failed is what the command says itself; the log has it for who asks for more."""
    before = [log.level for log in LOGS]
    if settings.log_level == "warning":
        for log in LOGS:
            log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(LOGS, before, strict=True):
            log.setLevel(level)


@asynccontextmanager
async def opened(reaches: Iterable[Reach]) -> AsyncGenerator[Mapping[str, Upstream], None]:
    """By name; each is started when it is first asked."""
    environment = upstream_environment()
    upstreams = {reach.name: open_upstream(reach, environment) for reach in reaches}
    try:
        yield upstreams
    finally:
        await asyncio.gather(*(upstream.close() for upstream in upstreams.values()))


async def told_if_slow(work: Coroutine[Any, Any, T], whom: str) -> T:
    """What comes of asking; a word on standard error where that takes long. On a terminal there
    is a bar already."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done and not sys.stderr.isatty():
            click.echo(f"Waiting for {whom} …", err=True)
        return await task
    finally:
        task.cancel()
