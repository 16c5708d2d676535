import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_folders import holders
from everkept.core.times import read_clock
from graph_mirror import observed, upserted

Run = Callable[..., Any]

WORD = "xyzzy-street"
BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
TOKEN = "gh" + "p_" + BODY


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def bank(everkept: Run, home: Path) -> Path:
    """With a graph that has every file a graph may have."""
    everkept("initialize-memory-bank", ".")
    everkept("graph-upsert-entity", "Ada", "person")
    everkept("graph-add-observation", "Ada", f"lives in {WORD}")
    everkept("graph-add-observation", "Ada", "likes tea")
    everkept("graph-compact")
    everkept("graph-rebuild")
    return home / "memory-bank"


def told(bank: Path) -> list[str]:
    lines = (bank / "graph" / "graph.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["type"] for line in lines]


def test_a_purge_leaves_no_byte_in_the_files_of_the_graph(everkept: Run, bank: Path) -> None:
    assert set(holders(bank, WORD)) == {"graph.jsonl", "graph.jsonl.bak", "graph.snapshot.json", "graph.md"}
    outcome = everkept("purge", "--containing", WORD, "--yes")
    assert outcome.status == 0
    assert holders(bank, WORD) == []
    assert "likes tea" in (bank / "graph" / "graph.jsonl").read_text(encoding="utf-8")
    assert "likes tea" in (bank / "graph" / "graph.md").read_text(encoding="utf-8")
    assert str(bank) in outcome.out
    assert "memory-bank-backup-*" in outcome.err
    assert "git history" in outcome.err


def test_what_stands_in_the_file_alone_is_purged_too(everkept: Run, bank: Path) -> None:
    with (bank / "graph" / "graph.jsonl").open("a", encoding="utf-8") as log:
        for event in (
            upserted("Eve", read_clock(), "person"),
            observed("Eve", "lives at plugh", read_clock(), "person"),
        ):
            log.write(json.dumps(event) + "\n")
    purged = everkept("purge", "--containing", "plugh", "--yes", "--json").json
    assert purged["purged"]["records"] == 1
    assert purged["cleaned"] == [str(bank)]
    assert purged["not_cleaned"] == {}
    assert any("backup" in place for place in purged["may_hold"])
    assert holders(bank, "plugh") == []
    everkept("graph-search", "Eve")
    assert holders(bank, "plugh") == []


def test_a_purge_reaches_the_files_from_another_folder(
    everkept: Run, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = everkept("log", "--json").json["changes"][0]["project"]
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "memory-bank").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    outcome = everkept("purge", "--containing", WORD, "--yes", "--project", project)
    assert str(bank) in outcome.out
    assert holders(bank, WORD) == []
    assert list((elsewhere / "memory-bank").iterdir()) == []


def test_a_bank_that_is_not_there_is_named(everkept: Run, bank: Path) -> None:
    bank.rename(bank.with_name("put-away"))
    outcome = everkept("purge", "--containing", WORD, "--yes")
    assert outcome.status == 0
    assert str(bank) in outcome.err
    assert "the folder does not exist" in outcome.err


def test_a_file_that_cannot_be_cleaned_is_named(everkept: Run, bank: Path) -> None:
    log = bank / "graph" / "graph.jsonl"
    log.write_text(f"not ours, {WORD}\n", encoding="utf-8")
    outcome = everkept("purge", "--containing", WORD, "--yes", "--json").json
    assert "first line" in outcome["not_cleaned"][str(bank)]
    assert outcome["cleaned"] == []


def test_a_purge_of_namesakes_that_were_deleted_cleans_the_files(everkept: Run, bank: Path) -> None:
    everkept("graph-upsert-entity", "Bob", "person", "--attrs", '{"home": "plugh"}')
    everkept("graph-delete-entity", "--entity", "Bob")
    everkept("graph-upsert-entity", "Bob", "person")
    assert "graph.jsonl" in holders(bank, "plugh")
    assert everkept("purge", "--deleted", "--yes").status == 0
    assert holders(bank, "plugh") == []


def test_a_purge_without_a_bank_speaks_of_none(everkept: Run, home: Path) -> None:
    everkept("create-entities", "name=Ada", "entity_type=person", "--project", "other")
    outcome = everkept("purge", "Ada", "--yes", "--project", "other")
    assert "bank" not in outcome.out + outcome.err
    everkept("create-entities", "name=Ada", "entity_type=person", "--project", "other")
    answer = everkept("purge", "Ada", "--yes", "--project", "other", "--json").json
    assert answer.keys() == {"project", "purged"}


def test_undo_and_its_undoing_reach_the_file_before_they_end(everkept: Run, bank: Path) -> None:
    everkept("graph-add-observation", "Ada", "likes milk")
    before = told(bank)
    assert everkept("undo").status == 0
    assert told(bank) == [*before, "observation_delete"]
    assert "likes milk" not in (bank / "graph" / "graph.md").read_text(encoding="utf-8")
    newest = everkept("log", "--json").json["changes"][0]["change"]
    assert everkept("undo", newest).status == 0
    assert told(bank) == [*before, "observation_delete", "observation_add"]


def test_a_change_of_another_project_stays_out_of_the_bank_at_hand(
    everkept: Run, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    everkept("create-entities", "name=Zoe", "entity_type=person", "--project", "other")
    monkeypatch.chdir(bank.parent)
    before = (bank / "graph" / "graph.jsonl").read_bytes()
    assert everkept("undo", "other:1").status == 0
    assert everkept("undo", "other:2").status == 0
    assert (bank / "graph" / "graph.jsonl").read_bytes() == before


def test_an_import_reaches_the_files_of_its_project(everkept: Run, home: Path) -> None:
    everkept("initialize-memory-bank", ".")
    everkept("graph-upsert-entity", "Ada", "person")
    file = home / "memory.jsonl"
    entity = {"type": "entity", "name": "Bob", "entityType": "person", "observations": ["cooks"]}
    file.write_text(json.dumps(entity) + "\n", encoding="utf-8")
    assert everkept("import", "server-memory", str(file)).status == 0
    assert told(home / "memory-bank")[-2:] == ["entity_upsert", "observation_add"]


def test_masking_leaves_no_byte_in_the_files_of_the_graph(
    everkept: Run, bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_MASK_SECRETS", "no")
    everkept("graph-upsert-entity", "CI", "system", "--attrs", json.dumps({"key": TOKEN}))
    everkept("graph-add-observation", "CI", f"runs with {TOKEN}")
    everkept("graph-compact")
    monkeypatch.delenv("EVERKEPT_MASK_SECRETS")
    assert len(holders(bank, BODY)) >= 4
    outcome = everkept("audit", "secrets", "--mask")
    assert outcome.status == 0
    assert holders(bank, BODY) == []
    assert str(bank) in outcome.out
    assert "git history" in outcome.err
    assert "[masked: github token]" in (bank / "graph" / "graph.md").read_text(encoding="utf-8")


def test_looking_for_secrets_touches_no_file(everkept: Run, bank: Path) -> None:
    before = {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()}
    assert everkept("audit", "secrets").status == 0
    assert {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()} == before
