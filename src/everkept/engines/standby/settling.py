"""What is found out, or known already, when an act is done."""

from collections.abc import Awaitable, Callable

from everkept.core.ports import Library
from everkept.core.projects import Project, Status
from everkept.engines.standby.journal.acts import Act
from everkept.errors import EverkeptError


async def expected(library: Library, name: str, status: Status, error: EverkeptError) -> Project:
    """The project, where an attempt without an answer has given it this status; else the error."""
    project = await library.project(name)
    if project.status != status:
        raise error
    return project


def always(act: Act) -> Callable[[], Awaitable[Act]]:
    async def given() -> Act:
        return act

    return given
