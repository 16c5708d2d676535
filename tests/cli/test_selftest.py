import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from everkept.app.app import App
from everkept.cli.selftest import run_selftest
from everkept.cli.selftest_workers import SelftestFact, SelftestLedger, judge
from everkept.core.sessions import Session
from everkept.settings import read_settings

COMMAND = (sys.executable, "-m", "everkept", "selftest", "--json")
ADA = SelftestFact("lives", "Ada")
LOVED = SelftestFact("lives", "Ada", text="loved numbers")


def test_killed_servers_lose_nothing_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--writers", "3", "--hours", "0.0012", "--data-dir", str(tmp_path)],
        # It has a folder of its own, whatever the settings say of where everything is kept.
        env={**os.environ, "EVERKEPT_DATABASE_URL": "ws://127.0.0.1:1"},
        stdout=subprocess.PIPE,
        timeout=100,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["problems"]) == (0, [])
    assert report["seconds"] > 4
    assert report["kills"] > 0
    assert report["acknowledged"] == report["found"] > 0
    assert report["lost"] == report["duplicates"] == report["torn"] == report["unasked"] == 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_trial_leaves_no_server_running(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []
    others = psutil.Process().children()  # of other tests

    def interrupt(_seconds: float, _calls: int, _kills: int) -> None:
        seen.extend(each for each in psutil.Process().children() if each not in others)
        raise KeyboardInterrupt

    log_path = tmp_path / "log"
    with log_path.open("wb") as log, pytest.raises(KeyboardInterrupt):
        run_selftest(tmp_path, 2, 60, log, interrupt)
    assert len(seen) == 3
    assert not any(process.is_running() for process in seen)


def test_an_acknowledged_write_that_is_not_there_counts_as_lost(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.acknowledge("lives", stored=[SelftestFact("lives", "Grace")], surely_changed=False)
    verdict = asyncio.run(judge(tmp_path, ledger))
    assert (verdict.acknowledged, verdict.found, verdict.lost) == (3, 2, 1)
    assert not verdict.is_good


def test_an_acknowledged_deletion_that_did_not_happen_counts_as_lost(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.acknowledge("lives", removed=[LOVED], surely_changed=False)
    assert asyncio.run(judge(tmp_path, ledger)).lost == 1


def test_a_call_of_which_a_part_was_stored_is_torn(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.abandon([ADA, SelftestFact("lives", "Ada", target="Grace")])
    assert asyncio.run(judge(tmp_path, ledger)).torn == 1


def test_what_nobody_was_promised_is_unasked(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    del ledger.promised[LOVED]
    assert asyncio.run(judge(tmp_path, ledger)).unasked == 1


def test_an_acknowledged_call_that_the_log_lacks_is_a_problem(tmp_path: Path) -> None:
    ledger = _ledger_of_ada(tmp_path)
    ledger.attempt("lives")
    ledger.acknowledge("lives", stored=[ADA])
    verdict = asyncio.run(judge(tmp_path, ledger))
    assert verdict.lost == 0
    assert len(verdict.problems) == 1


def test_a_library_that_kept_its_word_is_good(tmp_path: Path) -> None:
    verdict = asyncio.run(judge(tmp_path, _ledger_of_ada(tmp_path)))
    assert verdict.is_good
    assert (verdict.searched, verdict.changes) == (1, 1)


def _ledger_of_ada(data_dir: Path) -> SelftestLedger:
    """A library with one entity, and the ledger of the one call that made it."""
    asyncio.run(_store_ada(data_dir))
    ledger = SelftestLedger()
    ledger.attempt("lives")
    ledger.acknowledge("lives", stored=[ADA, LOVED])
    return ledger


async def _store_ada(data_dir: Path) -> None:
    app = App(read_settings({"data_dir": data_dir}, {}))
    session = Session()
    entity: dict[str, Any] = {"name": "Ada", "entity_type": "person"}
    arguments = {"entities": [entity | {"observations": ["loved numbers"]}]}
    await app.call(session, "create_project", {"name": "lives"})
    await app.call(session, "create_entities", arguments)
    await app.close()
