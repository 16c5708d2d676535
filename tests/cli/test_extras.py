"""`everkept extras`: what is optional, and how it is installed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.core.extras import EXTRAS, Extra

Run = Callable[..., Any]

BOOTSTRAP = """import json, pathlib, sys
pathlib.Path(__file__).with_name("called").write_text(json.dumps(sys.argv[1:]))
sys.exit({status})
"""


@pytest.fixture
def _missing(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setitem(EXTRAS, "ssh", Extra("ssh", "a_package_that_nobody_has", "memory banks on other machines"))


def make_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    """Let the environment be one that the `run` of a checkout created."""
    (folder / "tools").mkdir()
    (folder / "tools/bootstrap.py").write_text(BOOTSTRAP.format(status=status), encoding="utf-8")
    (folder / ".everkept-ready").write_text(f"{folder}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(folder))
    return folder / "tools/called"


@pytest.mark.usefixtures("_missing")
def test_extras_are_listed_with_their_purpose(everkept: Run) -> None:
    held = {each["name"]: each["installed"] for each in everkept("extras", "--json").json["extras"]}
    assert held == {name: name != "ssh" for name in EXTRAS}
    assert "memory banks on other machines" in everkept("extras").out
    assert "Nothing changed" in everkept("extras", "postgres").out
    assert everkept("extras", "nothing").status == 2


@pytest.mark.usefixtures("_missing")
def test_an_extra_is_installed_as_the_environment_was(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = make_checkout(tmp_path, monkeypatch)
    assert "Installed ssh" in everkept("extras", "ssh", "postgres").out
    assert json.loads(called.read_text("utf-8")) == ["run ssh", str(tmp_path)]


@pytest.mark.usefixtures("_missing")
def test_a_failed_installation_is_reported(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkout(tmp_path, monkeypatch, status=1)
    failed = everkept("extras", "ssh")
    assert (failed.status, failed.out) == (1, "")
    assert "could not be installed" in failed.err


@pytest.mark.usefixtures("_missing")
def test_another_installer_is_named_with_its_command(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    refused = everkept("extras", "ssh")
    assert refused.status == 2
    assert "[ssh]" in refused.err
