"""A library that takes over what another one holds, and dies of it."""

import asyncio
import logging
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from actors import say
from everkept.core.answers import CatalogData
from everkept.core.ports import Token
from everkept.core.projects import OffHistory, Project
from everkept.core.records import RecordFilter
from everkept.engines.sqlite import catalog, project_lifecycle
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.values import replace
from records import DAY_ONE, batch, entity

DIED = 9
# The functions that are steps of it: a move is finished or taken back by whoever comes next.
STEPS = {
    project_lifecycle.__file__: {"archive_project", "create_project", "delete_project", "restore_project"},
    catalog.__file__: {"_is_excluded_note", "_write_catalog_data", "_write_file_facts", "_write_projects"},
}
LATER = DAY_ONE + 5  # microseconds: no thousandths alone


async def fill(library: SqliteLibrary) -> None:
    """Projects that are to stay, to trade names, to move and to go, each with a record."""
    for name in ("one", "two", "away", "going"):
        await library.create(name, f"of {name}", project_id=f"id-{name}")
        _, store = await library.open(name)
        await store.commit(batch(entity(f"kept in {name}")))
    await library.archive("away")
    await library.link_workspace("/src/going", await library.get_project("going"))
    await library.link_workspace("/src/one", await library.get_project("one"))
    await library.set_off("going", off=True)
    await library.set_note("old", "note")
    await library.set_note("lease.work", "of this moment")
    await library.add_token(Token("t0", "old", DAY_ONE), "hash 0")


def wanted() -> CatalogData:
    """What the filled library is to hold."""
    one = Project("id-one", "two", "of one", "archived", DAY_ONE, LATER)
    return CatalogData(
        projects=[
            Project("id-away", "away", "told anew", "active", DAY_ONE, DAY_ONE),
            Project("id-fresh", "going", "takes a name", "active", LATER, LATER, DAY_ONE),
            replace(one, id="id-two", name="one", status="active", description=""),
            Project("id-put-away", "put away", "", "archived", DAY_ONE, LATER),
            one,
        ],
        workspaces={"/src/one": "id-two", "/src/fresh": "id-fresh"},
        switching={
            "id-fresh": OffHistory(((DAY_ONE, None),)),
            "id-gone": OffHistory(((DAY_ONE, LATER),), ("/src/gone",), LATER),
        },
        notes={"default": "going"},
        tokens=[(Token("t1", "new", LATER), "hash 1")],
    )


async def records_of(library: SqliteLibrary) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for project in await library.list_projects():
        store = await library.get_store(project)
        assert await store.find_faults() == []
        found[project.id] = [record.id for record in await store.scan(RecordFilter())]
    return found


KEPT = {
    "id-away": ["kept in away"],
    "id-fresh": [],
    "id-one": ["kept in one"],
    "id-put-away": [],
    "id-two": ["kept in two"],
}


def die_at_every_step(folder: str) -> None:
    """Says after each death whether the next attempt has brought all of it to its end."""
    template = Path(folder)
    logging.disable()  # of what the files tell when the list of them is lost
    for step in range(1, 1_000):
        copy = template.with_name(f"{template.name}-{step}")
        shutil.copytree(template, copy)
        status = _forked(lambda copy=copy, step=step: _die(copy, step))
        _forked(lambda copy=copy: asyncio.run(_finish(copy)))
        shutil.rmtree(copy)
        if status == 0:
            return


def _die(folder: Path, at_step: int) -> None:
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal steps
        if event == "call" and frame.f_code.co_name in STEPS.get(frame.f_code.co_filename, ()):
            steps += 1
            if steps == at_step:
                os._exit(DIED)

    async def run() -> None:
        library = SqliteLibrary(folder)
        await library.list_projects()
        threading.settrace(trace)
        sys.settrace(trace)
        await library.replace_catalog_data(wanted())
        sys.settrace(None)
        await library.close()

    asyncio.run(run())


async def _finish(folder: Path) -> None:
    library = SqliteLibrary(folder)
    await library.replace_catalog_data(wanted())
    is_whole = await library.read_catalog_data() == wanted() and await records_of(library) == KEPT
    await library.close()
    (folder / "_meta.db").unlink()
    # Made anew from what the files say of their projects.
    again = SqliteLibrary(folder)
    names = {project.id: project.name for project in await again.list_projects()}
    await again.close()
    say([is_whole, names == {project.id: project.name for project in wanted().projects}])


def _forked(work: Callable[[], None]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a fork must never go on with the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DIED)
    return code
