"""What waits in a journal, done to a library."""

from everkept.core.ports import Library
from everkept.core.projects import Project
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import Act
from everkept.engines.standby.replay import ReplayResult, replay
from records import DAY_ONE


async def replayed(journal: Journal, library: Library, *acts: Act) -> ReplayResult:
    for act in acts:
        await journal.append(act)
    return await replay(journal, library, on_progress=lambda *_: None)


def project(name: str, project_id: str) -> Project:
    return Project(project_id, name, f"about {name}", "active", DAY_ONE, DAY_ONE)


ATLAS = project("atlas", "11111111-2222-4333-8444-555555555555")
