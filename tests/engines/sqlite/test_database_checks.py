import asyncio
from pathlib import Path

import pytest

from data_folders import backed_up, everything, filled, statement
from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes
from everkept.care.doctor import check_databases
from everkept.engines.sqlite.connection import create
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import PROJECT
from everkept.values import replace
from processes import Actor, acting, said_by


def worst(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_databases(context) if finding.severity != "ok"]


def test_sound_databases_are_said_to_be_and_left_as_they_are(context: CheckContext) -> None:
    before = said_by("digests", context.folder)
    assert worst(context) == []
    assert worst(replace(context, full=True)) == []
    assert said_by("digests", context.folder) == before


def test_no_database_is_no_problem(context: CheckContext, tmp_path: Path) -> None:
    settings = replace(context.settings, data_dir=tmp_path / "none")
    [finding] = check_databases(replace(context, settings=settings))
    assert finding.severity == "ok"


@pytest.mark.parametrize("name", ["user.db", "_meta.db", "history.db"])
def test_a_damaged_database_is_named_with_the_backups_that_there_are(
    context: CheckContext, tmp_path: Path, name: str
) -> None:
    backed_up(context.folder, tmp_path / "copy.zip")
    (tmp_path / "data-before-restore-2026-01-01-000000.zip").touch()
    said_by("spoil", context.folder / name)
    found = [finding for finding in worst(context) if name in finding.what]
    assert [finding.severity for finding in found] == ["problem"]
    assert found[0].mend is None
    assert "data-before-restore-2026-01-01-000000.zip" in (found[0].command or "")
    assert (name == "_meta.db") == (str(tmp_path / "copy.zip") not in (found[0].command or ""))


def test_what_is_no_database_is_named_by_its_project(context: CheckContext) -> None:
    [path] = (context.folder / "projects").glob("*.db")
    path.write_bytes(b"scribbled over")
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert 'project "shop"' in finding.what


def test_a_page_that_is_wrong_in_the_middle_is_found(context: CheckContext) -> None:
    filled(context.folder, "another")
    [found] = statement(context.folder / "user.db", "SELECT rootpage FROM sqlite_schema WHERE name = 'records_author'")
    with (context.folder / "user.db").open("r+b") as file:
        file.seek((found[0] - 1) * 4096)
        file.write(b"\xff" * 100)
    found = worst(context)
    assert [finding.severity for finding in found] == ["problem"]
    assert found[0].mend is None


def test_a_newer_form_is_a_problem_and_an_older_one_is_none(context: CheckContext) -> None:
    (context.folder / "user.db").unlink()
    create(context.folder / "user.db", replace(PROJECT, migrations=PROJECT.migrations[:-1], temporary=""))
    assert worst(context) == []
    assert any("older schema" in finding.what for finding in check_databases(context))
    statement(context.folder / "user.db", "PRAGMA user_version=99")
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert "99" in finding.what


def test_a_word_index_out_of_step_is_brought_in_step(context: CheckContext) -> None:
    path = context.folder / "history.db"
    statement(path, "DELETE FROM words WHERE rowid IN (1, 2)")
    statement(path, "INSERT INTO words(rowid, text) VALUES (99, 'nobody')")
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert "2 records" in finding.what
    [done] = apply_fixes([finding])
    assert done.is_done
    assert worst(context) == []
    assert everything(context.folder)["stores"]["@history"]["faults"] == []


def test_a_damaged_word_index_is_made_anew(context: CheckContext) -> None:
    path = context.folder / "history.db"
    statement(path, "UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 10")
    found = [f for f in worst(replace(context, full=True)) if f.mend is not None]
    assert len(found) == 1
    assert "word index" in found[0].what
    before = statement(path, "SELECT * FROM records")
    [done] = apply_fixes(found)
    assert done.is_done, done
    assert worst(replace(context, full=True)) == []
    assert statement(path, "SELECT * FROM records") == before
    assert statement(path, "SELECT count(*) FROM words WHERE words MATCH 'remembered'") != [(0,)]


def test_a_large_log_is_folded_in(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    path = context.folder / "user.db"
    Actor("leave_log", path, "UPDATE records SET embedded = 'x'").finish()
    monkeypatch.setattr("everkept.engines.sqlite.database_checks.LARGE_LOG_BYTES", 1_000)
    [finding] = worst(context)
    assert finding.severity == "advice"
    [done] = apply_fixes([finding])
    assert done.is_done
    assert worst(context) == []
    assert statement(path, "SELECT DISTINCT embedded FROM records") == [("x",)]


def test_a_log_that_a_reader_needs_stays_and_that_is_said(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = context.folder / "user.db"
    monkeypatch.setattr("everkept.engines.sqlite.database_checks.LARGE_LOG_BYTES", 1_000)
    monkeypatch.setattr("everkept.engines.sqlite.database_checks.FOLD_SECONDS", 0.1)
    with acting("hold_snapshot", path) as reader:
        assert reader.hear() == "holding"
        statement(path, "UPDATE records SET embedded = 'x'")
        [done] = apply_fixes(worst(context))
        assert "still reads the log" in done.did
        reader.tell()


def test_a_store_that_a_restore_left_closed_is_opened_again(context: CheckContext) -> None:
    statement(context.folder / "user.db", "UPDATE meta SET value = -3 WHERE key = 'generation'")
    [finding] = worst(context)
    assert finding.severity == "problem"
    [done] = apply_fixes([finding])
    assert done.is_done
    assert worst(context) == []
    filled(context.folder, "another")


def test_a_locked_database_is_told_and_the_others_are_looked_at(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everkept.engines.sqlite.connection.BUSY_SECONDS", 0.05)
    statement(context.folder / "user.db", "PRAGMA journal_mode=DELETE")
    with acting("care_actors:lock_whole", context.folder / "user.db") as actor:
        assert actor.hear() == "holding"
        [finding] = worst(context)
        assert "locked" in finding.what
        actor.tell()


def test_the_file_of_one_project_is_brought_back_alone(context: CheckContext, tmp_path: Path) -> None:
    backed_up(context.folder, tmp_path / "copy.zip")
    [path] = (context.folder / "projects").glob("*.db")
    with path.open("r+b") as file:
        file.write(b"x" * 40)
    [finding] = worst(context)
    command = finding.command or ""
    assert command.startswith(f"move {path} out of the data folder")
    assert 'everkept restore FILE --project "shop"' in command
    assert str(tmp_path / "copy.zip") in command
    assert "--replace" not in command
    assert "everkept off" not in command


def test_a_project_that_is_off_is_to_be_off_again(context: CheckContext) -> None:
    async def switch() -> None:
        library = SqliteLibrary(context.folder)
        await library.set_off("shop", off=True)
        await library.close()

    asyncio.run(switch())
    [path] = (context.folder / "projects").glob("*.db")
    path.write_bytes(b"")
    [finding] = worst(context)
    assert (finding.command or "").endswith('then everkept off --project "shop"')


@pytest.mark.parametrize("content", [b"", b"scribbled over"])
def test_a_file_that_strayed_here_is_to_be_moved_away(context: CheckContext, content: bytes) -> None:
    path = context.folder / "projects" / "junk.db"
    path.write_bytes(content)
    [finding] = worst(context)
    assert "projects/junk.db" in finding.what
    assert finding.command == f"move {path} to another folder"
    assert finding.mend is None
    assert path.read_bytes() == content


def test_a_database_that_lacks_a_table_is_damaged(context: CheckContext) -> None:
    statement(context.folder / "user.db", "DROP TABLE words")
    statement(context.folder / "user.db", "DROP TABLE meta")
    [finding] = worst(context)
    assert 'table "meta" is missing' in finding.what


def test_a_planted_trigger_is_found_and_dropped(context: CheckContext) -> None:
    meta = context.folder / "_meta.db"
    planted = "INSERT INTO tokens VALUES ('x', 'x', 'x', 0)"
    statement(meta, f'CREATE TRIGGER "own ""it" AFTER INSERT ON notes BEGIN {planted}; END')
    statement(meta, "CREATE VIEW spy AS SELECT * FROM tokens")
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert "was not created by Everkept" in finding.what
    assert [mended.is_done for mended in apply_fixes([finding])] == [True]
    assert worst(context) == []


def test_a_planted_trigger_never_runs(context: CheckContext) -> None:
    planted = "INSERT INTO tokens VALUES ('x', 'x', 'x', 0)"
    statement(context.folder / "_meta.db", f"CREATE TRIGGER own AFTER INSERT ON notes BEGIN {planted}; END")

    async def run() -> int:
        library = SqliteLibrary(context.folder)
        await library.set_note("any", "value")
        tokens = await library.list_tokens()
        await library.close()
        return len(tokens)

    assert asyncio.run(run()) == 0


def test_a_foreign_table_is_found_and_kept(context: CheckContext) -> None:
    statement(context.folder / "user.db", "CREATE TABLE mine(x)")
    [finding] = worst(context)
    assert (finding.severity, finding.mend) == ("problem", None)
    assert 'table "mine" was not created by Everkept' in finding.what
