"""A `everkept migrate` that goes on page by page, when it is told to."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from actors import heard, say
from everkept.cli import database
from everkept.cli.main import main
from everkept.exchange import migration

PAGE = 2


@contextmanager
def _told(_title: str) -> Generator[Callable[[int, int], None], None, None]:
    """In place of the progress bar: says how far it is, and waits for a line."""

    def progress(done: int, total: int) -> None:
        say([done, total])
        heard()

    yield progress


def migrate_in_steps(*arguments: str) -> None:
    # Whoever started the tests in the background lets none of their children be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    migration.PAGE_ROWS = PAGE
    database.show_progress = _told
    main(["migrate", *arguments])
