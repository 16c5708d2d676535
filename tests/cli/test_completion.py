import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_processes import HANG, environment

Run = Callable[..., Any]


@pytest.fixture
def offered(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What is offered for the last of some words, as bash would ask."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")

    def offer(*words: str) -> list[str]:
        monkeypatch.setenv("_EVERKEPT_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["everkept", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        found = [line.partition(",")[2] for line in everkept("completion").out.splitlines() if line]
        monkeypatch.delenv("_EVERKEPT_COMPLETE")
        return found

    return offer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_calls_the_program_and_never_an_alias(
    everkept: Run, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_LAUNCHER", "/opt/my tools/everkept/run")
    script = everkept("completion", shell)
    assert script.status == 0
    assert "_EVERKEPT_COMPLETE" in script.out
    assert "'/opt/my tools/everkept/run' completion" in script.out
    for by_name in ("complete $1", "zsh_complete everkept", "(commandline -t) everkept", "$+commands", "& $1"):
        assert by_name not in script.out


def test_commands_and_options_are_completed(offered: Callable[..., list[str]]) -> None:
    assert "search-nodes" in offered("search-n")
    assert "recall" in offered("help", "rec")
    assert "--project" in offered("recall", "--pro")


def test_stored_values_are_completed(everkept: Run, offered: Callable[..., list[str]]) -> None:
    stored = everkept("remember", "We deploy on Fridays", "--tag", "release", "--json").json["memory_id"]
    everkept("create-entities", "name=Shop API", "entity_type=service")
    short = stored.removeprefix("memory:")[:8]
    assert offered("edit", short[:3]) == [short]
    assert offered("forget", short[:3].lower()) == [short]
    assert offered("list", "--tag", "re") == ["release"]
    assert offered("switch-project", "sh") == ["shop"]
    assert offered("recall", "--project", "sh") == ["shop"]
    assert offered("open-nodes", "Sh") == ["Shop API"]
    assert offered("setup", "co") == ["codex", "copilot"]
    assert offered("setup", "x") == []
    assert offered("edit", "--project", "missing", "0") == []


def test_a_file_is_left_to_the_shell(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in ("everkept import server-memory m", "everkept backup m", "everkept restore m"):
        monkeypatch.setenv("_EVERKEPT_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert everkept("completion").out.startswith(("file,", "dir,"))


def test_completion_creates_nothing(offered: Callable[..., list[str]], tmp_path: Path) -> None:
    assert offered("switch-project", "") == []
    assert not (tmp_path / "data").exists()


def test_bash_completes_an_alias(everkept: Run, tmp_path: Path) -> None:
    everkept("create-project", "Shop API")
    script = tmp_path / "completion.bash"
    script.write_text(everkept("completion", "bash").out, encoding="utf-8")
    asked = f"""
    shopt -s expand_aliases
    alias everkept=/nowhere/run
    . "{script}"
    complete -p everkept
    COMP_WORDS=(everkept switch-project Sh) COMP_CWORD=2
    _everkept_completion everkept Sh switch-project
    printf '<%s>\\n' "${{COMPREPLY[@]}}"
    """
    told = subprocess.run(
        ["bash", "--norc", "-c", asked],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=environment() | {"EVERKEPT_DATA_DIR": os.environ["EVERKEPT_DATA_DIR"]},
        timeout=HANG,
    )
    assert told.stderr == ""
    assert "-F _everkept_completion everkept" in told.stdout
    assert told.stdout.endswith("<Shop\\ API>\n")


def test_an_unknown_shell_is_a_mistake(everkept: Run) -> None:
    assert everkept("completion", "tcsh").status == 2
