import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from everkept.app.app import App
from everkept.cli.selftest import run_selftest
from everkept.cli.selftest_faults import CAN_FILL_DISK, fill_disk, free_disk
from everkept.cli.selftest_ledger import SelftestFact, SelftestLedger, judge
from everkept.cli.selftest_servers import CAN_FORK, JUMPING_SERVER
from everkept.cli.selftest_workers import SelftestConnection
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.settings import Settings, read_settings
from postgres_server import programs as postgres_programs

COMMAND = (sys.executable, "-m", "everkept", "selftest", "--json")
ADA = SelftestFact("lives", "Ada")
LOVED = SelftestFact("lives", "Ada", text="loved numbers")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user may walk into, as PostgreSQL is not run by root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def test_killed_servers_lose_nothing_and_nothing_is_left_behind(engine: str, reachable: Path) -> None:
    programs = postgres_programs() if engine == "postgres" else ""
    done = subprocess.run(
        [*COMMAND, "--engine", engine, "--writers", "3", "--hours", "0.0012", "--data-dir", str(reachable)],
        # It has a folder of its own, whatever the settings say of where everything is kept.
        env={
            **os.environ,
            "EVERKEPT_DATABASE_URL": "ws://127.0.0.1:1",
            "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        },
        stdout=subprocess.PIPE,
        timeout=100,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["problems"]) == (0, [])
    assert report["seconds"] > 4
    assert report["kills"] > 0
    assert report["acknowledged"] == report["found"] > 0
    assert report["lost"] == report["duplicates"] == report["partial"] == report["unexplained"] == 0
    assert report["reads"] > 0
    assert list(reachable.iterdir()) == []


def test_a_selftest_without_the_programs_of_postgresql_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--engine", "postgres", "--data-dir", str(tmp_path)],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    assert "initdb" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_of_the_trial_has_a_wrong_clock(tmp_path: Path) -> None:
    wire = SelftestConnection([sys.executable, *JUMPING_SERVER, "--data-dir", str(tmp_path)])
    wire.initialize("test")
    wire.call("create_project", {"name": "lives"})
    wire.call("create_entities", {"project": "lives", "entities": [{"name": "Ada", "entity_type": "person"}]})
    wire.close()
    assert abs(asyncio.run(_read_first_change(tmp_path)) - read_clock()) > 60_000_000


GROW = """
for _ in iter(input, "end"):
    try:
        open("file", "ab").write(b"x" * 2_000_000)
    except OSError:
        print("full", flush=True)
    else:
        print("ok", flush=True)
"""


def test_no_file_of_a_process_with_a_full_disk_grows(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GROW]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=tmp_path) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("go\n")
        assert child.stdout.readline() == "ok\n"
        fill_disk([child.pid])
        child.stdin.write("go\n")
        assert child.stdout.readline() == ("full\n" if CAN_FILL_DISK else "ok\n")
        free_disk([child.pid])
        child.stdin.write("go\n")
        assert child.stdout.readline() == "ok\n"
        child.stdin.write("end\n")


def test_an_interrupted_trial_still_counts_and_leaves_no_server_running(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []
    others = psutil.Process().children(recursive=True)  # of other tests

    def interrupt(_seconds: float, calls: int, _kills: int) -> None:
        if calls:
            seen.extend(each for each in psutil.Process().children(recursive=True) if each not in others)
            raise KeyboardInterrupt

    with (tmp_path / "log").open("wb") as log:
        run = run_selftest(tmp_path, 2, 600, log, interrupt)
    assert len(seen) > CAN_FORK  # servers, of which some may just have been killed
    assert not any(process.is_running() for process in seen)
    assert asyncio.run(judge(_settings(tmp_path), run.ledger)).is_good


def test_an_acknowledged_write_that_is_not_there_counts_as_lost(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.acknowledge("lives", stored=[SelftestFact("lives", "Grace")], surely_changed=False)
    verdict = asyncio.run(judge(_settings(tmp_path), ledger))
    assert (verdict.acknowledged, verdict.found, verdict.lost) == (3, 2, 1)
    assert not verdict.is_good


def test_an_acknowledged_deletion_that_did_not_happen_counts_as_lost(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.acknowledge("lives", removed=[LOVED], surely_changed=False)
    assert asyncio.run(judge(_settings(tmp_path), ledger)).lost == 1


def test_a_call_of_which_a_part_was_stored_counts_as_partial(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.abandon([ADA, SelftestFact("lives", "Ada", target="Grace")])
    assert asyncio.run(judge(_settings(tmp_path), ledger)).partial == 1


def test_what_nobody_was_promised_is_unexplained(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    del ledger.promised[LOVED]
    assert asyncio.run(judge(_settings(tmp_path), ledger)).unexplained == 1


def test_an_acknowledged_call_that_the_log_lacks_is_a_problem(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.attempt("lives")
    ledger.acknowledge("lives", stored=[ADA])
    verdict = asyncio.run(judge(_settings(tmp_path), ledger))
    assert verdict.lost == 0
    assert len(verdict.problems) == 1


def test_a_library_that_kept_its_word_is_good(tmp_path: Path) -> None:
    verdict = asyncio.run(judge(_settings(tmp_path), _ledger_of_ada(tmp_path)))
    assert verdict.is_good
    assert (verdict.searched, verdict.changes) == (1, 1)


def _ledger_of_ada(data_dir: Path) -> SelftestLedger:
    """A library with one entity, and the ledger of the one call that made it."""
    asyncio.run(_store_ada(data_dir))
    ledger = SelftestLedger()
    ledger.attempt("lives")
    ledger.acknowledge("lives", stored=[ADA, LOVED])
    return ledger


def _settings(data_dir: Path) -> Settings:
    return read_settings({"data_dir": data_dir}, {})


async def _read_first_change(data_dir: Path) -> int:
    app = App(_settings(data_dir))
    _, store = await app.library.open("lives")
    [change] = await store.read_changes(limit=1)
    await app.close()
    return change.at


async def _store_ada(data_dir: Path) -> None:
    app = App(_settings(data_dir))
    session = Session()
    entity: dict[str, Any] = {"name": "Ada", "entity_type": "person"}
    arguments = {"entities": [entity | {"observations": ["loved numbers"]}]}
    await app.call(session, "create_project", {"name": "lives"})
    await app.call(session, "create_entities", arguments)
    await app.close()
