"""Packages of frameworks and of other programs, each set in a folder of its own. Folders are kept for the next run."""

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".tools"
UV = "uv==0.13.8"  # as in tools/release_trials.py
INSTALL_SECONDS = 900


def install(*packages: str, python: str = sys.executable, overrides: Sequence[str] = ()) -> Path:
    """Return the folder with these packages and all that they need, for this Python.

    `overrides` take the place of what the packages ask for. pip has no such option, uv does.
    """
    uv = _install_once((UV,), [*_find_pip(), "install", "--quiet", UV])
    wanted = TOOLS / f"overrides-{os.getpid()}.txt"
    wanted.write_text("\n".join(overrides), encoding="utf-8")
    options = ["--quiet", "--python", python, "--overrides", str(wanted)]
    command = [sys.executable, "-m", "uv", "pip", "install", *options, *packages]
    try:
        return _install_once((*packages, *overrides, python, sys.version), command, {"PYTHONPATH": str(uv)})
    finally:
        wanted.unlink()


def _find_pip() -> list[str]:
    """Return how to run pip, which the environment of the tests need not have."""
    wheel = runpy.run_path(str(TOOLS.with_name("tools") / "pip_wheel.py"))["bundled"]()
    return [sys.executable, "-m", "pip"] if wheel is None else [sys.executable, str(wheel / "pip")]


def _install_once(wanted: Sequence[str], command: Sequence[str], variables: Mapping[str, str] | None = None) -> Path:
    described = "\n".join(wanted)
    folder = TOOLS / f"python-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    # Install into another folder, then move it, so that an interrupted installation is never used.
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    done = subprocess.run(
        [*command, "--target", str(partial)],
        env=os.environ | {**(variables or {})},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        pytest.fail(f"{wanted[0]} cannot be installed:\n{done.stderr}", pytrace=False)
    try:
        partial.rename(folder)
    except OSError:  # another test process was faster
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def find_python(minor: int) -> str:
    """Return a Python that is new enough: this one, one on the path, or one beside this one. Otherwise fail."""
    names = [f"python3.{number}" for number in range(minor, minor + 4)]
    beside = Path(sys.base_prefix).parent.glob("*/bin/python3")  # as pyenv and uv install them
    for python in [sys.executable, *filter(None, map(shutil.which, names)), *sorted(map(str, beside))]:
        asked = [python, "-I", "-c", f"import sys; sys.exit(sys.version_info < (3, {minor}))"]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return python
    pytest.fail(f"Python 3.{minor} or newer is not installed", pytrace=False)
