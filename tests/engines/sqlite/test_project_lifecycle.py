from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from everkept.core.records import RecordFilter
from everkept.engines.sqlite import project_lifecycle
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import LIBRARY
from everkept.errors import Conflict, NotFound, ProjectArchived, StorageFull, StoreBusy, StoreDamaged
from processes import Actor, acting, said_by
from records import batch, entity

WRITERS = 3
ROUNDS = 4


async def ids(library: SqliteLibrary, project: str = "project") -> list[str]:
    _, store = await library.open(project)
    return [record.id for record in await store.scan(RecordFilter())]


def files(folder: Path) -> list[str]:
    """Where the databases of projects are, and whatever else is beside them."""
    beside = (path for name in ("projects", "archive") for path in (folder / name).iterdir())
    return sorted(
        str(path.relative_to(folder).parent) + path.name[36:]
        for path in beside
        if not path.name.endswith(("-wal", "-shm"))
    )


async def test_nothing_acknowledged_is_lost_when_a_project_moves_under_its_writers(
    library: SqliteLibrary, folder: Path
) -> None:
    with ExitStack() as stack:
        writers = [
            stack.enter_context(acting("commit_until_told", folder, "project", f"writer{number}"))
            for number in range(WRITERS)
        ]
        assert [writer.hear() for writer in writers] == ["writing"] * WRITERS
        for _ in range(ROUNDS):
            await library.archive("project")
            await library.restore("project")
        await wait_for_a_commit_of_each(library)
        said = [writer.ask() for writer in writers]
    found = set(await ids(library))
    assert set().union(*(told["acknowledged"] for told in said)) <= found
    # A file that comes back while it is opened may be refused as `unavailable`: call again.
    known = {"project_archived", "conflict", "project_status", "unavailable"}
    assert set().union(*(told["refusals"] for told in said)) <= known
    assert all(told["after"] for told in said if told["refusals"])
    _, store = await library.open("project")
    assert await store.find_faults() == []
    assert len(await store.read_changes(limit=1_000_000)) == len(found)


async def wait_for_a_commit_of_each(library: SqliteLibrary) -> None:
    """Until every writer has gone on after the last move."""
    _, store = await library.open("project")
    start = (await store.read_changes(limit=1, newest_first=True))[0].seq
    seen: set[str] = set()
    while len(seen) < WRITERS:
        for change in await store.read_changes(after=start, limit=1_000):
            seen.update((edit.id or "").split("-")[0] for edit in change.edits)


async def test_an_idle_window_takes_nothing_with_it_when_it_closes(library: SqliteLibrary, folder: Path) -> None:
    with acting("archive_restore_commit_and_die", folder, "project") as other:
        assert other.hear() == "acknowledged"
        other.process.wait()
    # This window has had the file open since before the move.
    await library.close()
    assert await ids(library) == ["kept", "acknowledged"]


async def test_a_window_with_the_old_file_is_refused_until_it_asks_again(library: SqliteLibrary, folder: Path) -> None:
    with acting("commit_when_told", folder, "project") as other:
        assert other.hear() == "ready"
        await library.archive("project")
        assert other.ask("while archived") == "project_archived"
        await library.restore("project")
        assert other.ask("with the old file") in {"project_archived", "conflict"}
    assert await ids(library) == ["kept", "first"]


async def test_a_window_is_told_that_its_project_is_deleted(library: SqliteLibrary, folder: Path) -> None:
    with acting("commit_when_told", folder, "project") as other:
        assert other.hear() == "ready"
        await library.delete("project")
        assert other.ask("too late") == "not_found"
    assert files(folder) == []


async def test_a_purge_does_not_reach_into_an_archived_file(library: SqliteLibrary, folder: Path) -> None:
    with acting("purge_when_told", folder, "project") as other:
        assert other.hear() == "ready"
        await library.archive("project")
        assert other.ask("kept") in {"project_archived", "conflict"}
    await library.restore("project")
    assert await ids(library) == ["kept"]


async def test_archiving_beside_a_reader_gives_up_and_leaves_everything_as_it_was(
    library: SqliteLibrary, folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_lifecycle, "FOLD_SECONDS", 0.1)
    with acting("hold_snapshot", path) as reader:
        assert reader.hear() == "holding"
        _, store = await library.open("project")
        await store.commit(batch(entity("not yet folded in")))
        with pytest.raises(StoreBusy):
            await library.archive("project")
        assert (await library.get_project("project")).status == "active"
        assert files(folder) == ["projects.db"]
        await store.commit(batch(entity("with the same store")))
        assert reader.ask() == "released"
    assert await ids(library) == ["kept", "not yet folded in", "with the same store"]
    await library.archive("project")
    assert files(folder) == ["archive.db"]


@pytest.mark.parametrize(
    ("operation", "ends_as", "loser"), [("archive", "archived", "project_status"), ("delete", None, "not_found")]
)
async def test_of_two_processes_that_move_one_project_one_wins_and_the_other_is_told(
    library: SqliteLibrary, folder: Path, operation: str, ends_as: str | None, loser: str
) -> None:
    await library.close()
    with ExitStack() as stack:
        movers = [stack.enter_context(acting("move", folder, operation, "project")) for _ in range(3)]
        assert [mover.hear() for mover in movers] == ["ready"] * 3
        for mover in movers:
            mover.tell()
        said = Counter(mover.hear() for mover in movers)
    assert said == {"ok": 1, loser: 2}
    left = {project.name: project.status for project in await library.list_projects()}
    assert left == ({"project": ends_as} if ends_as else {})
    assert files(folder) == (["archive.db"] if ends_as else [])


async def test_deleting_beside_an_archiving_process_leaves_no_file(library: SqliteLibrary, folder: Path) -> None:
    await library.close()
    with (
        acting("move", folder, "archive", "project") as archiving,
        acting("move", folder, "delete", "project") as deleting,
    ):
        assert (archiving.hear(), deleting.hear()) == ("ready", "ready")
        archiving.tell()
        assert deleting.ask() == "ok"
        assert archiving.hear() in {"ok", "not_found"}
    assert await library.list_projects() == []
    assert files(folder) == []


@pytest.fixture
def every(thorough: bool) -> int:
    """How many lines lie between two crashes; each takes a tenth of a second."""
    return 1 if thorough else 4


def after_each_crash(folder: Path, operation: str, every: int) -> list[dict[str, Any]]:
    descriptions = Actor("crash_at_lines", folder, operation, every).finish()
    assert len(descriptions) > 20 // every
    assert [told["problems"] for told in descriptions if told["problems"]] == []
    assert {told["unfinished"] for told in descriptions} == {0}
    return descriptions


async def test_a_crash_while_a_project_is_made_leaves_it_whole_or_not_at_all(
    library: SqliteLibrary, folder: Path, every: int
) -> None:
    await library.delete("project")
    await library.close()
    seen = after_each_crash(folder, "create", every)
    assert {tuple(told["projects"]) for told in seen} == {(), ("made",)}
    assert all(told["files"] == ["projects"] * len(told["projects"]) for told in seen)


@pytest.mark.parametrize("operation", ["archive", "restore"])
async def test_a_crash_while_a_project_moves_leaves_it_on_one_side_with_everything_in_it(
    library: SqliteLibrary, folder: Path, operation: str, every: int
) -> None:
    if operation == "restore":
        await library.archive("project")
    await library.close()
    seen = after_each_crash(folder, operation, every)
    assert {told["projects"]["project"] for told in seen} == {"active", "archived"}
    assert [told["records"] for told in seen] == [["kept"]] * len(seen)
    sides = {"active": ["projects"], "archived": ["archive"]}
    assert all(told["files"] == sides[told["projects"]["project"]] for told in seen)


@pytest.mark.parametrize("archived", [False, True])
async def test_a_crash_while_a_project_is_deleted_leaves_it_whole_or_not_at_all(
    library: SqliteLibrary, folder: Path, every: int, *, archived: bool
) -> None:
    if archived:
        await library.archive("project")
    await library.close()
    side = "archive" if archived else "projects"
    outcomes = {
        (*told["projects"], *told["records"], *told["files"]) for told in after_each_crash(folder, "delete", every)
    }
    assert outcomes == {(), ("project", "kept", side)}


async def test_a_failure_after_the_file_has_moved_keeps_the_project_reachable(
    library: SqliteLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when there is no room left in `_meta.db`."""
    with monkeypatch.context() as patched:
        patched.setattr(project_lifecycle, "unlink_logs", failing_once(project_lifecycle.unlink_logs))
        with pytest.raises(StorageFull):
            await library.archive("project")
    assert (await library.get_project("project")).status == "archived"
    await library.restore("project")
    assert await ids(library) == ["kept"]


def failing_once(function: Any) -> Any:
    calls: list[None] = []

    def fail(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return function(*arguments)

    return fail


async def test_a_failing_copy_leaves_the_archive_as_it_was(
    library: SqliteLibrary, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.archive("project")
    with monkeypatch.context() as patched:
        patched.setattr(project_lifecycle, "_copy", failing_once(project_lifecycle._copy))
        with pytest.raises(StorageFull):
            await library.restore("project")
    assert (await library.get_project("project")).status == "archived"
    assert files(folder) == ["archive.db"]
    with pytest.raises(ProjectArchived):
        await library.open("project")
    await library.restore("project")
    assert await ids(library) == ["kept"]


async def test_a_failing_delete_leaves_the_project_usable(
    library: SqliteLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path.suffix == ".db":
            raise OSError(28, "No space left on device")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(StorageFull):
            await library.delete("project")
    _, store = await library.open("project")
    await store.commit(batch(entity("after")))
    assert await ids(library) == ["kept", "after"]


async def test_a_project_that_cannot_be_repaired_does_not_keep_the_others_shut(
    library: SqliteLibrary, folder: Path, path: Path
) -> None:
    await library.create("other", "")
    await library.close()
    said_by("spoil", path)
    said_by("set_transition", folder / "_meta.db", "project", "archiving")
    again = SqliteLibrary(folder)
    assert [project.name for project in await again.list_projects()] == ["other", "project"]
    assert await ids(again, "other") == []
    with pytest.raises(StoreDamaged):
        await ids(again)
    await again.delete("project")
    assert [project.name for project in await again.list_projects()] == ["other"]
    await again.close()


async def test_an_intent_that_a_crash_left_is_settled_by_the_next_move(library: SqliteLibrary, folder: Path) -> None:
    await library.list_projects()
    said_by("set_transition", folder / "_meta.db", "project", "restoring")
    await library.archive("project")
    said_by("set_transition", folder / "_meta.db", "project", "archiving")
    await library.restore("project")
    assert await ids(library) == ["kept"]


@pytest.fixture
def crashed(library: SqliteLibrary, folder: Path, path: Path) -> SqliteLibrary:
    """Still lives, while another process has died in the middle of archiving its project."""
    with acting("die_while_archiving", folder, "project") as other:
        assert other.process.wait() != 0
    assert files(folder) == ["archive.db"]
    return library


async def test_a_living_window_finishes_what_the_crash_of_another_left(crashed: SqliteLibrary) -> None:
    with pytest.raises(ProjectArchived):
        await crashed.open("project")
    assert [project.status for project in await crashed.list_projects()] == ["archived"]
    with pytest.raises(Conflict):
        await crashed.archive("project")
    await crashed.restore("project")
    assert await ids(crashed) == ["kept"]


async def test_a_list_shows_what_became_of_a_move_that_a_crash_interrupted(crashed: SqliteLibrary) -> None:
    assert [project.status for project in await crashed.list_projects()] == ["archived"]
    assert await crashed.list_projects("active") == []


async def test_what_a_crash_left_stays_settled_though_the_move_itself_is_refused(
    crashed: SqliteLibrary, folder: Path, path: Path
) -> None:
    meta = Database(folder / "_meta.db", LIBRARY)
    place = project_lifecycle.ProjectPaths(folder, path.stem, "project")
    with pytest.raises(Conflict):
        await project_lifecycle.archive_project(meta, place, "2026-01-01T00:00:00.000Z")
    left = await meta.read(lambda db: db.execute("SELECT status, transition FROM projects").get)
    assert left == ("archived", None)
    await meta.close()


@pytest.mark.parametrize("transition", ["creating", "deleting"])
async def test_a_name_that_a_crash_has_kept_is_free(library: SqliteLibrary, folder: Path, transition: str) -> None:
    said_by("set_transition", folder / "_meta.db", "project", transition)
    await library.create("project", "anew")
    assert [project.description for project in await library.list_projects()] == ["anew"]
    assert await ids(library) == []
    said_by("set_transition", folder / "_meta.db", "project", transition)
    with pytest.raises(NotFound):
        await library.open("project")
    assert files(folder) == []


def only_file(folder: Path) -> Path:
    [path] = folder.glob("*/*.db")
    return path


@pytest.mark.parametrize("archived", [False, True])
async def test_a_file_that_is_gone_for_good_is_told_so(
    library: SqliteLibrary, folder: Path, every: int, *, archived: bool
) -> None:
    if archived:
        await library.archive("project")
    await library.close()
    only_file(folder).unlink()
    for attempt in (library.restore,) if archived else (library.open, library.archive):
        with pytest.raises(StoreDamaged) as caught:
            await attempt("project")
        assert "Try again" not in str(caught.value)
        assert '"project"' in caught.value.message
    assert (await library.get_project("project")).status == ("archived" if archived else "active")
    await library.delete("project")
    assert await library.list_projects() == []


@pytest.mark.parametrize("archived", [False, True])
async def test_the_error_of_a_damaged_file_names_its_project(
    library: SqliteLibrary, folder: Path, every: int, *, archived: bool
) -> None:
    if archived:
        await library.archive("project")
    await library.close()
    only_file(folder).write_bytes(b"no database at all")
    with pytest.raises(StoreDamaged) as caught:
        await (library.restore("project") if archived else ids(library))
    assert 'project "project"' in caught.value.message
