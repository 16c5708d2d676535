from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_folders import holders

Run = Callable[..., Any]

BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
TOKEN = "gh" + "p_" + BODY


@pytest.fixture
def leaky(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A project with a secret that was stored while masking was off."""
    everkept("create-project", "shop")
    monkeypatch.setenv("EVERKEPT_MASK_SECRETS", "no")
    everkept("create-entities", "name=CI", "entity_type=system", f"observations=uses {TOKEN} daily")
    monkeypatch.delenv("EVERKEPT_MASK_SECRETS")
    return everkept


def test_secrets_are_listed_without_showing_them(leaky: Run, tmp_path: Path) -> None:
    told = leaky("audit", "secrets", "--json").json
    (finding,) = told["findings"]
    assert (finding["project"], finding["kind"], finding["place"]) == ("shop", "observation", "text")
    assert finding["secrets"] == ["github token"]
    assert finding["excerpt"] == "uses [masked: github token] daily"
    assert told["masked"] is None
    shown = leaky("audit", "secrets")
    assert "github token" in shown.out
    assert "--mask" in shown.out
    assert BODY not in shown.out + shown.err
    assert holders(tmp_path / "data", BODY)


def test_masking_replaces_them_and_leaves_no_byte(leaky: Run, tmp_path: Path) -> None:
    leaky("delete-observations", "entity_name=CI", f"observations=uses {TOKEN} daily")
    leaky("undo")
    assert "1 record," in leaky("audit", "secrets", "--mask").out
    assert holders(tmp_path / "data", BODY) == []
    assert leaky("audit", "secrets").out == "No secrets found.\n"
    graph = leaky("read-graph", "--json").json
    (observation,) = graph["entities"][0]["observations"]
    assert observation["content"] == "uses [masked: github token] daily"
    assert "redact" in leaky("log").out


def test_one_project_can_be_looked_into_alone(leaky: Run) -> None:
    leaky("create-project", "other")
    told = leaky("audit", "secrets", "--project", "other", "--json").json
    assert told["findings"] == []
    assert leaky("audit", "secrets", "--project", "shop", "--json").json["findings"]
    assert leaky("audit", "secrets", "--project", "nowhere").status == 2


def test_masking_is_refused_where_only_reading_is_allowed(leaky: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "yes")
    assert leaky("audit", "secrets").status == 0
    assert leaky("audit", "secrets", "--mask").status == 2


def test_relations_are_masked_and_ids_are_told_to_be_left(leaky: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_MASK_SECRETS", "no")
    leaky("create-relations", "from=CI", "to=CI", f"relation_type=runs with {TOKEN}")
    leaky("store-memory", "it is green", "--session-id", TOKEN)
    monkeypatch.delenv("EVERKEPT_MASK_SECRETS")
    told = leaky("audit", "secrets", "--mask")
    assert "Masked in 1 record and 1 relation, log and index." in told.out
    assert "everkept purge ID" in told.err
    again = leaky("audit", "secrets", "--json").json
    assert {finding["place"] for finding in again["findings"]} == {"session", "id"}
    assert all(finding["in_id"] for finding in again["findings"])
    assert "--mask" not in leaky("audit", "secrets").out
    graph = leaky("read-graph", "--json").json
    assert graph["relations"][0]["relation_type"] == "runs with [masked: github token]"


@pytest.mark.parametrize("options", [(), ("--mask",)])
def test_a_project_that_is_off_is_not_looked_into(leaky: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    leaky("off", "--project", "shop")
    looked = leaky("audit", "secrets", *options)
    assert (looked.status, looked.out) == (0, "No secrets found.\n")
    assert "Not searched: shop." in looked.err
    refused = leaky("audit", "secrets", "--project", "shop", *options, "--json")
    assert (refused.status, refused.json["error"]) == (2, "project_off")
    assert holders(tmp_path / "data", BODY)
