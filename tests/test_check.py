"""`test` runs a few tests that fail once more, and tells of those that were unsteady."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from setting_up import PROJECT

# The first time fails; what it leaves behind lets the second one pass.
UNSTEADY = """
from pathlib import Path

def test_unsteady_{number}():
    seen = Path(__file__).with_name("seen {number}")
    has_been, _ = seen.exists(), seen.touch()
    assert has_been
"""

STEADY = "def test_broken(): assert False\n"

KEEPS_BYTECODE = """
import os

def test_bytecode_is_kept():
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
"""


def checked(project: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """What the checks say of a project that has these tests."""
    (project / "tools").mkdir()
    shutil.copy(PROJECT / "tools/check.py", project / "tools")
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


def test_what_fails_among_the_others_and_passes_alone_is_told_as_unsteady(tmp_path: Path) -> None:
    done = checked(tmp_path, KEEPS_BYTECODE, UNSTEADY, UNSTEADY, UNSTEADY)
    assert done.returncode == 0, done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith("unsteady: ")]
    names = [f"tests/test_{n}.py::test_unsteady_{n}" for n in (1, 2, 3)]
    assert sorted(line.split()[1] for line in told) == names


@pytest.mark.parametrize(
    ("tests", "runs"),
    [
        pytest.param([KEEPS_BYTECODE, UNSTEADY, STEADY], 2, id="one fails alone too"),
        pytest.param([UNSTEADY] * 4, 1, id="more than a few"),
        pytest.param(["import nowhere\n"], 2, id="a file that cannot be read"),
    ],
)
def test_everything_else_that_fails_fails_the_checks(
    tmp_path: Path, tests: list[str], runs: int
) -> None:
    done = checked(tmp_path, *tests)
    assert done.returncode == 1
    assert done.stderr.endswith("failed: tests\n")
    assert "unsteady" not in done.stderr
    assert done.stdout.count("test session starts") == runs
