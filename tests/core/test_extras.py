"""How a reader is told to install an extra."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from everkept.core.extras import format_install_hint


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))


def install_from(monkeypatch: pytest.MonkeyPatch, direct_url: str | None) -> None:
    """Let the installed package say that it came from there."""

    class Installed:
        def read_text(self, name: str) -> str | None:
            return direct_url if name == "direct_url.json" else None

    def found(_name: str) -> Any:
        return Installed()

    monkeypatch.setattr(metadata, "distribution", found)


def test_an_environment_of_run_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/bootstrap.py").touch()
    (tmp_path / ".everkept-ready").write_text(f"{tmp_path}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert format_install_hint("ssh", "oauth") == "To install it, run `everkept extras ssh oauth`."


@pytest.mark.parametrize(("place", "command"), [("uv/tools", "uv tool"), ("pipx/venvs", "pipx")])
def test_an_environment_of_another_program_names_all_its_extras(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, command: str
) -> None:
    install_from(monkeypatch, f'{{"url": "{tmp_path.as_uri()}"}}')
    monkeypatch.setattr(sys, "prefix", str(tmp_path / place / "everkept"))
    hint = format_install_hint("ssh")
    assert hint.startswith(f"Run: {command} install --force '{tmp_path}[")
    assert {"ssh", "postgres"} <= set(hint.partition("[")[2].rstrip("]'").split(","))  # this environment has all


def test_a_folder_or_wheel_is_named_while_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "a b.whl"
    wheel.touch()
    install_from(monkeypatch, f'{{"url": "{wheel.as_uri()}"}}')
    assert format_install_hint("ssh") == f"Run: pip install '{wheel}[ssh]'"
    wheel.unlink()
    assert str(wheel) not in format_install_hint("ssh")


@pytest.mark.parametrize("told", [None, "", "{", '{"url": "https://host/x.whl"}'])
def test_nothing_is_said_of_the_package_index(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    install_from(monkeypatch, told)
    hint = format_install_hint("postgres")
    assert "[postgres]" in hint
    assert "pip install" not in hint
