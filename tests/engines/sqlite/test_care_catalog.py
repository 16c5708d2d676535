import asyncio
from pathlib import Path

import pytest

from data_folders import backed_up, everything, filled, statement
from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes
from everkept.care.doctor import check_projects
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import OLD_BACKUP_MICROSECONDS
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.values import replace
from processes import said_by
from records import batch, entity


@pytest.fixture(autouse=True)
def backup(context: CheckContext, tmp_path: Path) -> Path:
    """One that is fresh, so that nothing is said of that."""
    backed_up(context.folder, tmp_path / "copy.zip")
    return tmp_path / "copy.zip"


def worst(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_projects(context) if finding.severity != "ok"]


def mended_one(context: CheckContext) -> DoctorFinding:
    """The one thing that is wrong; afterwards nothing is."""
    [finding] = worst(context)
    [done] = apply_fixes([finding])
    assert done.is_done, done
    assert worst(context) == []
    return finding


def written(folder: Path, project: str) -> None:
    async def run() -> None:
        library = SqliteLibrary(folder)
        _, store = await library.open(project)
        await store.commit(batch(entity("written after")))
        await library.close()

    asyncio.run(run())


def file_of(context: CheckContext, part: str = "projects") -> Path:
    [path] = (context.folder / part).glob("*.db")
    return path


def test_projects_that_have_their_files_are_well_and_left_as_they_are(context: CheckContext) -> None:
    before = said_by("digests", context.folder)
    assert worst(context) == []
    assert said_by("digests", context.folder) == before


def test_a_move_that_was_cut_short_is_settled(context: CheckContext) -> None:
    said_by("set_transition", context.folder / "_meta.db", "shop", "archiving")
    assert mended_one(context).severity == "problem"
    written(context.folder, "shop")


def test_a_file_that_is_gone_is_named_and_never_mended(context: CheckContext) -> None:
    file_of(context).unlink()
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert '"shop"' in finding.what
    assert "everkept restore FILE --project" in (finding.command or "")
    assert finding.mend is None


def test_a_file_in_the_wrong_folder_is_found_there(context: CheckContext) -> None:
    path = file_of(context)
    path.rename(context.folder / "archive" / path.name)
    assert mended_one(context).severity == "problem"
    found = everything(context.folder)
    assert found["archived"] == ["old", "shop"]
    assert len(found["stores"]["shop"]["records"]) == 4


@pytest.mark.parametrize("generation", [-1, 0, 7])
def test_a_project_that_its_file_keeps_from_being_written_can_be_written_again(
    context: CheckContext, generation: int
) -> None:
    sql = f"UPDATE meta SET value = {generation} WHERE key = 'generation'"
    statement(file_of(context), sql)
    assert mended_one(context).severity == "problem"
    written(context.folder, "shop")


def test_a_file_that_the_list_lacks_is_listed_again(context: CheckContext) -> None:
    before = everything(context.folder)["stores"]["shop"]
    meta = context.folder / "_meta.db"
    statement(meta, "DELETE FROM workspaces")
    statement(meta, "DELETE FROM projects WHERE name = 'shop'")
    assert mended_one(context).severity == "problem"
    assert everything(context.folder)["stores"]["shop"] == before
    written(context.folder, "shop")


def test_what_is_left_of_a_deleted_project_goes(context: CheckContext) -> None:
    path = file_of(context)
    statement(path, "UPDATE meta SET value = 0 WHERE key = 'generation'")
    statement(context.folder / "_meta.db", "DELETE FROM workspaces")
    statement(context.folder / "_meta.db", "DELETE FROM projects WHERE name = 'shop'")
    assert mended_one(context).severity == "advice"
    assert not path.exists()


def test_a_list_that_is_missing_is_made_anew(context: CheckContext) -> None:
    (context.folder / "_meta.db").unlink()
    [finding] = worst(context)
    assert finding.severity == "problem"
    for lost in ("turned-off", "Tokens", "folder"):
        assert lost in finding.what
    assert "first restore _meta.db" in (finding.command or "")
    [done] = apply_fixes([finding])
    assert done.is_done
    assert "all are turned on" in done.did
    assert {name for _, name, _, _ in everything(context.folder)["projects"]} == {"shop", "old"}


def test_the_turn_of_a_process_that_died_long_ago_is_ended(context: CheckContext) -> None:
    meta = context.folder / "_meta.db"
    statement(meta, f"INSERT INTO notes VALUES ('lease.vectors', 'somebody {read_clock()}')")
    assert worst(context) == []
    statement(meta, "UPDATE notes SET value = 'somebody 1' WHERE key = 'lease.vectors'")
    assert mended_one(context).severity == "advice"


def test_a_project_that_is_off_is_told_with_how_to_switch_it_on(context: CheckContext) -> None:
    async def switch() -> None:
        library = SqliteLibrary(context.folder)
        await library.set_off("shop", off=True)
        await library.close()

    asyncio.run(switch())
    [finding] = [finding for finding in check_projects(context) if "turned off" in finding.what]
    assert finding.severity == "ok"
    assert finding.command == 'everkept on --project "shop"'


def test_an_old_or_missing_backup_gets_advice(context: CheckContext, backup: Path) -> None:
    later = replace(context, clock=lambda: read_clock() + 2 * OLD_BACKUP_MICROSECONDS)
    [finding] = worst(later)
    assert finding.severity == "advice"
    assert str(backup) in finding.what
    backup.unlink()
    [finding] = worst(context)
    assert "no longer exists" in finding.what
    statement(context.folder / "_meta.db", "DELETE FROM notes WHERE key = 'backup.last'")
    [finding] = worst(context)
    assert finding.command == "everkept backup FILE"


def test_an_empty_folder_has_nothing_to_say(context: CheckContext, tmp_path: Path) -> None:
    settings = replace(context.settings, data_dir=tmp_path / "none")
    assert [*check_projects(replace(context, settings=settings))] == []


@pytest.mark.parametrize("content", [b"", b"scribbled over"])
def test_a_file_that_strayed_here_keeps_nothing_from_being_looked_at(context: CheckContext, content: bytes) -> None:
    (context.folder / "projects" / "junk.db").write_bytes(content)
    assert worst(context) == []
    assert any("2 projects" in finding.what for finding in check_projects(context))
    file_of(context, "archive").write_bytes(content)
    statement(context.folder / "_meta.db", "UPDATE projects SET generation = 7 WHERE name = 'shop'")
    [finding] = worst(context)
    assert '"shop"' in finding.what


def test_what_accounts_keep_for_themselves_is_counted_and_not_named(context: CheckContext, tmp_path: Path) -> None:
    filled(context.folder, "@user (anna)", "@user (bob)", "@history (bob)")
    told = [finding.what for finding in check_projects(context)]
    assert told[0] == "Found 2 projects and 3 private stores of accounts, each with its file."
    for path in (context.folder / "projects").glob("*.db"):
        path.unlink()
    for finding in worst(context):
        assert "(anna)" not in f"{finding.what} {finding.command}"
        assert "(bob)" not in f"{finding.what} {finding.command}"
    own = [each for each in worst(context) if "the private data of an account" in each.what]
    assert len(own) == 3
    assert all("restore FILE --replace" in (each.command or "") for each in own)
