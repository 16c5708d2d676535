"""What waits in a journal, done to a library."""

from making import DAY_ONE
from recollect.core.ports import Library
from recollect.core.projects import Project
from recollect.engines.standby.journal.acts import Act
from recollect.engines.standby.journal.journal import Journal
from recollect.engines.standby.replay.replaying import Replayed, replay


async def replayed(journal: Journal, library: Library, *acts: Act) -> Replayed:
    for act in acts:
        await journal.append(act)
    return await replay(journal, library, on_progress=lambda *_: None)


def project(name: str, project_id: str) -> Project:
    return Project(project_id, name, f"about {name}", "active", DAY_ONE, DAY_ONE)


ATLAS = project("atlas", "11111111-2222-4333-8444-555555555555")
