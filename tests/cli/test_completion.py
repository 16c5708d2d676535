from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(recollect: Run, shell: str) -> None:
    script = recollect("completion", shell)
    assert script.status == 0
    assert "_RECOLLECT_COMPLETE" in script.out


def test_commands_and_options_are_completed(
    recollect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_RECOLLECT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "recollect search-n")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "search-nodes" in recollect().out


def test_an_unknown_shell_is_a_mistake(recollect: Run) -> None:
    assert recollect("completion", "tcsh").status == 2
