"""Crashes on the way to the trash and back."""

from pathlib import Path

import pytest

from everkept.core.library import SetProjectStatus
from everkept.core.projects import build_trash_name
from everkept.engines.sqlite.library import SqliteLibrary
from processes import Actor


@pytest.mark.parametrize("operation", ["trash", "untrash"])
async def test_a_crash_while_a_project_goes_to_the_trash_or_back_loses_nothing(
    library: SqliteLibrary, folder: Path, operation: str
) -> None:
    project = await library.get_project("project")
    trashed = build_trash_name(project.id)
    if operation == "untrash":
        await library.apply(SetProjectStatus("project", "archived", trashed))
    await library.close()
    seen = Actor("trash_actors:crash_at_lines", folder, operation, 4).finish()
    assert {told["unfinished"] for told in seen} == {0}
    assert [told["problems"] for told in seen if told["problems"]] == []
    assert {name for told in seen for name in told["projects"]} == {"project", trashed}
    assert {told["projects"]["project"] for told in seen if "project" in told["projects"]} == {"active"}
    assert [(len(told["projects"]), told["records"]) for told in seen] == [(1, ["kept"])] * len(seen)
