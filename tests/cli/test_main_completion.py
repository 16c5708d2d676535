from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(everkept: Run, shell: str) -> None:
    script = everkept("completion", shell)
    assert script.status == 0
    assert "_EVERKEPT_COMPLETE" in script.out


def test_commands_and_options_are_completed(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_EVERKEPT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "everkept search-n")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "search-nodes" in everkept().out


def test_an_unknown_shell_is_a_mistake(everkept: Run) -> None:
    assert everkept("completion", "tcsh").status == 2
