"""`test` fails with any test, and `test --changed` chooses thorough ones."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scratch_checkout import PROJECT

BROKEN = "def test_broken(): assert False\n"

KEEPS_BYTECODE = """
import os

def test_bytecode_is_kept():
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
"""


def checked(project: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """What the checks say of a project that has these tests."""
    (project / "tools").mkdir()
    for name in ("check.py", "changed.py"):
        shutil.copy(PROJECT / "tools" / name, project / "tools")
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (project / "tests").mkdir()
    for number, text in enumerate(tests):
        (project / f"tests/test_{number}.py").write_text(text.replace("{number}", str(number)))
    return subprocess.run(
        [sys.executable, str(project / "tools/check.py"), "--only", "tests"],
        capture_output=True,
        check=False,
        cwd=project,
        encoding="utf-8",
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_tests_that_pass_pass_the_checks(tmp_path: Path) -> None:
    done = checked(tmp_path, KEEPS_BYTECODE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(BROKEN, id="a test"),
        pytest.param("import nowhere\n", id="a file that cannot be read", marks=pytest.mark.thorough),
    ],
)
def test_a_test_that_fails_fails_the_checks_and_is_run_once(tmp_path: Path, broken: str) -> None:
    done = checked(tmp_path, KEEPS_BYTECODE, broken)
    assert done.returncode == 1
    assert done.stderr.endswith("failed: tests\n")
    assert done.stdout.count("test session starts") == 1


CHANGED = runpy.run_path(str(PROJECT / "tools/changed.py"))


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("src/everkept/engines/postgres/store.py", ["contracts", "engines/postgres", "journeys"]),
        ("src/everkept/families/bank/markdown_sections.py", ["families/bank"]),
        ("src/everkept/core/words.py", ["contracts", "core"]),
        ("examples/langgraph_agent.py", ["integrations"]),
        ("src/everkept/errors.py", []),
        ("tests/journeys/test_off.py", ["journeys"]),
        ("tests/test_docs.py", []),
        ("tests/support/clocks.py", []),
        ("docs/tools.md", []),
    ],
)
def test_a_changed_path_has_its_tests_run_in_full(path: str, folders: list[str]) -> None:
    assert CHANGED["options_for"]([path]) == [f"--all-of=tests/{folder}" for folder in folders]


def test_after_changes_in_many_folders_nothing_runs_in_full() -> None:
    few = [f"src/everkept/families/{name}/toolset.py" for name in ("bank", "graph", "history", "memories")]
    assert len(CHANGED["options_for"](few)) == 4
    assert CHANGED["options_for"]([*few, "src/everkept/cli/main.py"]) == []


def git(folder: Path, *arguments: str) -> None:
    known = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    subprocess.run(["git", *known, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_last_commit_on_record_is_compared_with(tmp_path: Path) -> None:
    options = CHANGED["options_since_record"]
    assert options(tmp_path) == []
    git(tmp_path, "init", "--initial-branch=main")
    (tmp_path / "src/everkept/hooks").mkdir(parents=True)
    (tmp_path / "src/everkept/hooks/entry.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    assert options(tmp_path) == []
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    (tmp_path / "src/everkept/hooks/entry.py").write_text("2\n")
    git(tmp_path, "commit", "-am", "second")
    git(tmp_path, "commit", "--allow-empty", "-m", "third")
    assert options(tmp_path) == ["--all-of=tests/hooks"]  # since origin/main
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert options(tmp_path) == []  # since the commit before
    git(tmp_path, "tag", "v1.0")
    assert options(tmp_path) == ["--all"]


THOROUGH = """
import pytest

@pytest.mark.thorough
def test_thorough(): pass

def test_quick(): pass
"""


@pytest.mark.parametrize(
    ("options", "passed"), [([], 2), (["--all"], 4), (["--all-of=tests/one"], 3), (["--all-of=tests/on"], 2)]
)
def test_thorough_tests_run_where_they_are_asked_for(tmp_path: Path, options: list[str], passed: int) -> None:
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for name in ("one", "two"):
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"test_{name}.py").write_text(THOROUGH)
    shutil.copy(PROJECT / "tests/conftest.py", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    command += [f"--basetemp={tmp_path / 'scratch'}"]  # others may clean up the usual one
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr
