import asyncio
from pathlib import Path
from typing import Any

import pytest

import postgres_server
from database_places import SERVERS, TITLES, named
from everkept.app.engines import find_standby, make_library
from everkept.app.server_faults import find_server_damage
from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.care.database_server import check_database
from everkept.core.times import read_clock
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import SetNote
from everkept.settings import read_settings
from everkept.values import replace
from processes import acting
from surreal_server import PASSWORD, USER, fresh_namespace, shared

NOBODY = "ws://127.0.0.1:1"  # where nothing listens


def patient_with(folder: Path, password: str = PASSWORD, **flags: Any) -> CheckContext:
    environment = {"EVERKEPT_DATABASE_PASSWORD": password} if "database_user" in flags else {}
    return CheckContext(read_settings({"data_dir": folder, "config": "none", **flags}, environment), read_clock)


def served(folder: Path, core: int, **more: Any) -> CheckContext:
    places = {"database_url": shared(core).url, "namespace": fresh_namespace()}
    return patient_with(folder, database_user=USER, **places, **more)


def found(context: CheckContext) -> list[DoctorFinding]:
    return [*check_database(context)]


def left_waiting(context: CheckContext, waiting: int, aside: int) -> None:
    standby = find_standby(context.settings)
    assert standby is not None
    standby.folder.mkdir(parents=True)

    async def run() -> None:
        journal = Journal(standby.journal)
        numbers = [await journal.append(SetNote("key", "")) for _ in range(waiting + aside)]
        for number in numbers[:aside]:
            await journal.reject(number, "It is gone.")
        await journal.close()

    asyncio.run(run())


def make_project(context: CheckContext) -> None:
    async def run() -> None:
        library = make_library(context.settings, read_clock, standing_by=False)
        await library.create("shop", "")
        await library.close()

    asyncio.run(run())


def test_a_look_makes_no_schema_and_a_mistyped_one_is_a_problem(tmp_path: Path) -> None:
    right = patient_with(tmp_path, "", **named("postgres"))
    wrong = patient_with(tmp_path, "", **{**named("postgres"), "namespace": "nobodys"})
    make_project(right)
    for _ in range(2):
        [finding] = found(wrong)
        assert finding.severity == "problem"
        assert 'no schema "nobodys"' in finding.what
        assert right.settings.namespace in (finding.command or "")


def test_files_of_ours_are_looked_at_elsewhere(context: CheckContext) -> None:
    assert found(context) == []
    in_memory = replace(context.settings, deployment_mode="embedded-memory")
    assert found(replace(context, settings=in_memory)) == []


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_answers_is_told_with_its_version(tmp_path: Path, server: str) -> None:
    context = patient_with(tmp_path, **named(server))
    make_project(context)
    finding, checked = found(context)
    assert (finding.severity, checked.severity) == ("ok", "ok")
    assert "3 stores quickly" in checked.what
    assert TITLES[server] in finding.what
    assert context.settings.database_url is not None
    assert context.settings.database_url in finding.what
    assert "1 project." in finding.what


def test_tables_and_rows_that_somebody_changed_are_a_problem(tmp_path: Path) -> None:
    context = patient_with(tmp_path, "", **named("postgres"))
    make_project(context)
    schema = context.settings.namespace
    with postgres_server.shared().connect() as connection:
        connection.execute(f"UPDATE {schema}.stores SET ages = -1; DELETE FROM {schema}.switching".encode())
        connection.execute(f"INSERT INTO {schema}.changes VALUES (1, 9, 1, 'tool', 'client')".encode())
        told = [finding.what for finding in found(context) if finding.severity == "problem"]
        assert told == ["The user store has 1 change with a number above the store's counter."]
        assert asyncio.run(find_server_damage(context.settings, read_clock)) is not None
        connection.execute(f"CREATE VIEW {schema}.spy AS SELECT * FROM {schema}.records".encode())
    [problem] = [finding for finding in found(context) if finding.severity == "problem"]
    assert 'view "spy" was not created by Everkept' in problem.what


@pytest.mark.parametrize("address", [NOBODY, "postgresql://127.0.0.1:1/team"])
def test_a_server_that_is_away_is_a_problem_and_is_not_stood_in_for(tmp_path: Path, address: str) -> None:
    [finding] = found(patient_with(tmp_path, database_url=address, database_user=USER))
    assert finding.severity == "problem"
    assert "127.0.0.1:1" in finding.what
    assert finding.command
    assert [*tmp_path.iterdir()] == []


def test_a_wrong_password_is_a_problem_and_is_not_told(tmp_path: Path) -> None:
    context = patient_with(tmp_path, "hunter2", database_user=USER, database_url=shared(2).url, namespace="x")
    [finding] = found(context)
    assert finding.severity == "problem"
    assert USER in f"{finding.what} {finding.command}" or "password" in finding.what
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize(("waiting", "aside"), [(1, 0), (3, 1), (0, 2)])
def test_writes_that_wait_and_those_that_were_set_aside_are_told(tmp_path: Path, waiting: int, aside: int) -> None:
    context = served(tmp_path, 2)
    left_waiting(context, waiting, aside)
    told = found(context)[2:]
    counts = {"advice": waiting, "problem": aside}
    assert [(each.severity, int(each.what.split()[0])) for each in told] == [
        (severity, count) for severity, count in counts.items() if count
    ]
    assert {each.command for each in told} == {"everkept journal"}


def test_a_journal_that_was_moved_away_is_told(tmp_path: Path) -> None:
    context = served(tmp_path, 2)
    left_waiting(context, 1, 0)
    standby = find_standby(context.settings)
    assert standby is not None
    standby.journal.write_bytes(b"scribbled over" * 1_000)
    journal = Journal(standby.journal)
    asyncio.run(journal.list_pending())
    asyncio.run(journal.close())
    [finding] = [each for each in found(context) if each.severity == "problem"]
    [moved] = standby.folder.glob("journal.damaged-*.db")
    assert str(moved) in finding.what


def test_an_engine_inside_the_program_is_looked_at_where_it_holds_something(tmp_path: Path) -> None:
    context = patient_with(tmp_path / "data", engine="surreal")
    [finding] = found(context)
    assert (finding.severity, finding.what) == ("ok", "Nothing is stored yet.")
    assert not (tmp_path / "data").exists()
    make_project(context)
    finding, checked = found(context)
    assert (finding.severity, checked.severity) == ("ok", "ok")
    assert "1 project." in finding.what


def test_a_folder_that_a_server_has_open_is_no_problem(tmp_path: Path) -> None:
    context = patient_with(tmp_path, engine="surreal")
    with acting("surreal_holders:fill", tmp_path / "surreal") as holder:
        assert holder.hear() is not None
        [finding] = found(context)
    assert finding.severity == "advice"
    assert "in use by another process" in finding.what


def test_files_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    context = patient_with(tmp_path, engine="surreal")
    (tmp_path / "surreal" / "wal").mkdir(parents=True)
    [finding] = found(context)
    assert finding.severity == "problem"
    assert "version 3" in finding.what


def test_writes_for_a_server_that_is_not_used_any_more_are_told(tmp_path: Path) -> None:
    left_waiting(patient_with(tmp_path, database_url="ws://old:8000"), 2, 1)
    [finding] = found(patient_with(tmp_path))
    assert finding.severity == "advice"
    assert "2 pending, 1 rejected" in finding.what
