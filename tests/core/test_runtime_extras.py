"""How a reader is told to install an extra."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from everkept.core.runtime import format_install_hint


def install_from(monkeypatch: pytest.MonkeyPatch, direct_url: str | None) -> None:
    """Let the installed package say that it came from there."""

    class Installed:
        def read_text(self, name: str) -> str | None:
            return direct_url if name == "direct_url.json" else None

    def found(_name: str) -> Any:
        return Installed()

    monkeypatch.setattr(metadata, "distribution", found)


def test_a_checkout_is_told_to_start_its_own_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_from(monkeypatch, f'{{"url": "{tmp_path.as_uri()}", "dir_info": {{"editable": true}}}}')
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert f"start {tmp_path / 'run'}" in format_install_hint("ssh")


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
