"""A progress bar on standard error, for people only."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from everkept.cli.running import harmless
from everkept.core.sessions import Report


@contextmanager
def bar(title: str) -> Generator[Callable[[int, int], None], None, None]:
    """Gives a function that takes what is done and the total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def reported(title: str) -> Generator[Report | None, None, None]:
    """The same for work that may tell how far it is, or nothing; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(title), total=None)

        async def report(done: float, total: float | None, message: str | None) -> None:
            told = escape(harmless(" ".join((message or title).split())))
            progress.update(task, completed=done, total=total, description=told)

        yield report
