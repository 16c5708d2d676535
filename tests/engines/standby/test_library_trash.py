"""The trash while a database may be unreachable."""

from pathlib import Path

import pytest

from everkept.core.library import SetProjectStatus
from everkept.core.projects import build_trash_name
from everkept.errors import StoreUnreachable
from records import batch, entity
from standby import standing_by


async def test_a_project_goes_to_the_trash_only_while_the_database_is_there(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        project = await standing.library.create("project", "")
        store = await standing.store()
        await store.commit(batch(entity("Ada")))
        await standing.followed()
        trashed = build_trash_name(project.id)
        await standing.goes()
        with pytest.raises(StoreUnreachable):
            await standing.library.apply(SetProjectStatus("project", "archived", trashed))
        assert [p.name for p in await standing.library.list_projects()] == ["project"]
        await standing.returns()
        await standing.library.apply(SetProjectStatus("project", "archived", trashed))
        await standing.goes()
        assert [p.name for p in await standing.library.list_projects()] == [trashed]
        await standing.returns()
        restored = await standing.library.apply(SetProjectStatus(trashed, "active", "project"))
        assert restored.id == project.id
        assert [r.id for r in await (await standing.stored()).get(["Ada"])] == ["Ada"]
