"""What is found out, or known already, when an act is done."""

from collections.abc import Awaitable, Callable

from recollect.core.ports import Library
from recollect.core.projects import Project, Status
from recollect.engines.standby.journal.acts import Act
from recollect.errors import RecollectError


async def expected(library: Library, name: str, status: Status, error: RecollectError) -> Project:
    """The project, where an attempt without an answer has given it this status; else the error."""
    project = await library.project(name)
    if project.status != status:
        raise error
    return project


def always(act: Act) -> Callable[[], Awaitable[Act]]:
    async def given() -> Act:
        return act

    return given
