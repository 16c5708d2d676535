import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_folders import everything, filled
from database_places import SERVERS, variables
from everkept.app.engines import find_standby
from everkept.core.ports import RecordVector
from everkept.core.records import RecordFilter
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import SetNote
from everkept.settings import read_settings
from processes import PATIENCE, Actor, acting

Run = Callable[..., Any]
NOBODY = "ws://127.0.0.1:1"  # where nothing listens
PROJECTS = ("old", "quiet", "shop")
STORES = {"@user", "@history", *PROJECTS}


def with_vectors(folder: Path) -> None:
    async def run() -> None:
        library = SqliteLibrary(folder)
        _, store = await library.open("shop")
        vectors = np.eye(OnnxEmbedder.dimensions, dtype=np.float32)
        records = await store.scan(RecordFilter())
        embedded = [
            RecordVector(record.id, record.version, vector) for record, vector in zip(records, vectors, strict=False)
        ]
        await store.put_vectors(OnnxEmbedder.name, embedded)
        await library.set_off("quiet", off=True)
        await library.close()

    asyncio.run(run())


def vectors_of(folder: Path) -> Mapping[str, list[float]]:
    async def run() -> Mapping[str, list[float]]:
        library = SqliteLibrary(folder)
        _, store = await library.open("shop")
        ids = [record.id for record in await store.scan(RecordFilter())]
        found = await store.get_vectors(OnnxEmbedder.name, ids)
        await library.close()
        return {record_id: vector.tolist() for record_id, vector in found.items()}

    return asyncio.run(run())


def held(folder: Path) -> dict[str, Any]:
    """All that is in a folder but for vectors, of which one model's alone are copied."""
    found = everything(folder)
    for store in found["stores"].values():
        assert store["faults"] == []
        del store["vectors"]
    return found


def silences(folder: Path) -> Any:
    async def run() -> Any:
        library = SqliteLibrary(folder)
        found = await library.list_off_periods()
        await library.close()
        return found

    return asyncio.run(run())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where commands keep everything: projects that are in use, archived and switched off."""
    folder = tmp_path / "data"
    filled(folder, *PROJECTS, archived=("old",))
    with_vectors(folder)
    return folder


@pytest.fixture
def on_server(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The address of an empty place on a server, to which the environment has the rest."""

    def place(server: str) -> str:
        chosen = variables(server)
        url = chosen.pop("EVERKEPT_DATABASE_URL")
        for name, value in chosen.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("EVERKEPT_ENGINE", "surreal")
        return url

    return place


def same(data: Path, copy: Path) -> bool:
    return (held(copy), vectors_of(copy), silences(copy)) == (held(data), vectors_of(data), silences(data))


def test_what_went_to_surrealdb_and_back_is_the_same(everkept: Run, data: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    first = everkept("migrate", "--to", f"surreal:{there}")
    assert (first.status, first.err) == (0, "")
    assert f"Copied 3 projects from sqlite:{data} to surreal:{there}. Both are equal." in (" ".join(first.out.split()))
    for name in STORES:
        assert f"  {name}: " in first.out
    assert "sha256" in first.out
    again = everkept("migrate", "--from", f"surreal:{there}", "--to", f"sqlite:{back}", "--json")
    assert again.status == 0
    assert again.json["projects"] == 3
    assert {each["store"] for each in again.json["stores"]} == STORES
    assert all(each["records"] and each["log_entries"] for each in again.json["stores"])
    assert same(data, back)


@pytest.mark.parametrize("server", SERVERS)
def test_what_went_to_a_server_and_back_is_the_same(
    everkept: Run, data: Path, tmp_path: Path, on_server: Callable[[str], str], server: str
) -> None:
    back, url = tmp_path / "back", on_server(server)
    there = everkept("migrate", "--from", f"sqlite:{data}", "--to", url, "--json")
    assert there.status == 0
    again = everkept("migrate", "--from", url, "--to", f"sqlite:{back}", "--json")
    assert again.status == 0
    sums = [{e["store"]: e["sha256"] for e in each.json["stores"]} for each in (there, again)]
    assert sums[0] == sums[1]
    assert same(data, back)


def test_a_copy_is_used_as_what_it_was_copied_from(everkept: Run, data: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert everkept("migrate", "--to", f"surreal:{there}").status == 0
    places = ("--engine", "surreal", "--data-dir", str(there))
    told = everkept("status", *places, "--json").json
    assert {row["name"]: row["status"] for row in told["projects"]} == {
        "shop": "active",
        "old": "archived",
        "quiet": "active",
    }
    found = everkept("recall", "remembered", "--project", "shop", *places)
    assert "shop is remembered" in found.out


def stopped(actor: Actor, how: int, after: int) -> tuple[list[int], str]:
    """How far it was when it was stopped, and what it said of that."""
    seen = actor.hear()
    for _ in range(after - 1):
        seen = actor.ask()
    actor.process.send_signal(how)
    _, told = actor.process.communicate("\n" * 1_000, timeout=PATIENCE)
    return seen, told


@pytest.mark.parametrize(
    ("engine", "how"),
    [
        ("surreal", signal.SIGKILL),
        ("sqlite", signal.SIGINT),
        ("postgres", signal.SIGKILL),
        pytest.param("surreal", signal.SIGINT, marks=pytest.mark.thorough),
        pytest.param("sqlite", signal.SIGKILL, marks=pytest.mark.thorough),
        pytest.param("postgres", signal.SIGINT, marks=pytest.mark.thorough),
    ],
)
def test_a_copy_that_was_stopped_goes_on_where_it_was(
    everkept: Run, data: Path, tmp_path: Path, on_server: Callable[[str], str], engine: str, how: int
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    target = on_server(engine) if engine == "postgres" else f"{engine}:{there}"
    arguments = ("--data-dir", str(data), "--engine", "sqlite", "--to", target)
    with acting("migration_actors:migrate_in_steps", *arguments, stderr=-1) as actor:
        (done, total), told = stopped(actor, how, after=6)
    assert 0 < done < total
    assert actor.process.returncode != 0
    if how == signal.SIGINT:
        assert "Interrupted. Run the same command again to continue" in told
        assert "Traceback" not in told
    with acting("migration_actors:migrate_in_steps", *arguments, "--json") as actor:
        actor.tell("\n" * 1_000)
        output, _ = actor.process.communicate(timeout=PATIENCE)
    assert actor.process.returncode == 0
    first = json.loads(output.splitlines()[0])
    assert first[0] >= 2, "what was there was copied again"
    if engine != "sqlite":
        assert everkept("migrate", "--from", target, "--to", f"sqlite:{back}").status == 0
    assert same(data, there if engine == "sqlite" else back)


def test_a_place_that_holds_something_is_left_as_it_is(everkept: Run, data: Path, tmp_path: Path) -> None:
    filled(tmp_path / "mine", "own")
    before = held(tmp_path / "mine")
    refused = everkept("migrate", "--to", f"sqlite:{tmp_path / 'mine'}", "--json")
    assert (refused.status, refused.json["error"]) == (2, "conflict")
    assert held(tmp_path / "mine") == before


def test_a_finished_copy_is_not_written_over(everkept: Run, data: Path, tmp_path: Path) -> None:
    to = ("--to", f"sqlite:{tmp_path / 'there'}")
    assert everkept("migrate", *to).status == 0
    assert everkept("migrate", *to, "--json").json["error"] == "conflict"


def test_both_ends_are_not_the_same(everkept: Run, data: Path) -> None:
    refused = everkept("migrate", "--to", f"sqlite:{data}", "--json")
    assert (refused.status, refused.json["error"]) == (2, "invalid_input")
    assert held(data)["projects"]


@pytest.mark.parametrize("place", ["sqlite", "surreal"])
def test_where_nothing_is_stored_there_is_nothing_to_copy(everkept: Run, tmp_path: Path, place: str) -> None:
    source, target = tmp_path / "mistyped", tmp_path / "there"
    refused = everkept("migrate", "--from", f"{place}:{source}", "--to", f"sqlite:{target}")
    assert refused.status == 2
    assert f"No data found in {place}:{source}." in refused.err
    assert not source.exists()
    assert not target.exists()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--to", "postgres://127.0.0.1"),
        ("--from", "ws://localhost", "--to", "http://127.0.0.1:80/rpc"),
        ("--from", "postgres://localhost/team", "--to", "postgresql://[::1]:5432/team"),
        ("--to", "somewhere"),
        ("--to", "sqlite:there", "--from", "nowhere"),
        ("--to", "sqlite:there", "--project", "shop"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_made(
    everkept: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert everkept("migrate", *options).status == 2
    assert [*(tmp_path / "work").iterdir()] == []


def test_what_is_in_memory_cannot_be_copied(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_DEPLOYMENT_MODE", "embedded-memory")
    refused = everkept("migrate", "--to", f"sqlite:{tmp_path / 'there'}", "--json")
    assert (refused.status, refused.json["error"]) == (2, "refused")
    assert not (tmp_path / "there").exists()


def test_where_only_reading_is_allowed_nothing_is_copied(
    everkept: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    refused = everkept("migrate", "--to", f"sqlite:{tmp_path / 'there'}", "--json")
    assert (refused.status, refused.json["error"]) == (2, "read_only")
    assert not (tmp_path / "there").exists()


def test_a_server_that_is_away_is_not_copied_to(everkept: Run, data: Path) -> None:
    refused = everkept("migrate", "--to", NOBODY, "--json")
    assert (refused.status, refused.json["error"]) == (1, "memory_unavailable")
    assert not (data / "standby").exists()


@pytest.mark.parametrize("is_aside", [False, True])
def test_nothing_is_copied_while_writes_are_kept_on_this_machine(
    everkept: Run, data: Path, tmp_path: Path, is_aside: bool
) -> None:
    places = {"data_dir": data, "database_url": NOBODY, "config": "none"}
    standby = find_standby(read_settings(places, {}))
    assert standby is not None
    standby.folder.mkdir(parents=True)

    async def run() -> None:
        journal = Journal(standby.journal)
        number = await journal.append(SetNote("key", "value"))
        if is_aside:
            await journal.reject(number, "It is gone.")
        await journal.close()

    asyncio.run(run())
    for ends in (("--from", NOBODY, "--to", f"sqlite:{tmp_path / 'there'}"), ("--to", NOBODY)):
        refused = everkept("migrate", *ends, "--json")
        assert (refused.status, refused.json["error"]) == (2, "refused")
        assert NOBODY in refused.json["message"]
    assert not (tmp_path / "there").exists()
