"""Ways to create an environment and to install packages, best first."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pip_wheel

Command = list[str]

COMPILE = """
import compileall, sys, sysconfig
for folder in (*sys.argv[1:], *{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
    compileall.compile_dir(folder, quiet=2)
"""

REMEDY = """to fix this, run one of these:
  Debian, Ubuntu: sudo apt install python3-venv
  Fedora:         sudo dnf install python3-pip
  macOS:          brew install python
  Windows:        winget install Python.Python.3.13"""


class StepFailed(Exception):
    """A failed step. The message is for the user and ends with the output of the command."""


class Unable(Exception):
    """A command failed, or this machine does not have it. The message says why."""


def make(root: Path, python: Path, checkout: Path) -> None:
    """Create an environment without pip. The folder may already exist."""
    closed: list[str] = []
    for name, command in _makers(root):
        try:
            _run(command, checkout)
        except Unable as error:
            closed.append(f"  {name}: {_last_line(error)}")
        else:
            if python.exists():
                return
            closed.append(f"  {name}: left no {python}")
    raise StepFailed("\n".join(["cannot create an environment", *closed, REMEDY]))


def install(python: Path, requirements: Path, checkout: Path) -> None:
    """Install the pinned packages, then the project itself as an editable install."""
    closed: list[str] = []
    for name, way in WAYS.items():
        try:
            installer = way(python, checkout)
        except Unable as error:
            closed.append(f"  {name}: {_last_line(error)}")
            continue
        say(f"installing {requirements.relative_to(checkout)} with {name}")
        try:
            _run([*installer, "--require-hashes", "--requirement", str(requirements)], checkout)
            project = ["--no-deps", "--no-build-isolation", "--editable", str(checkout)]
            _run([*installer, *project], checkout)
        except Unable as error:
            if way is not _uv:
                raise StepFailed(f"{name} could not install\n{error}") from None
            # uv ignores pip's settings, which may name the only index that can be reached.
            closed.append(f"  {name}: {_last_line(error)}")
            say(f"uv could not install\n{error}")
        else:
            return
    raise StepFailed("\n".join(["nothing here can install packages", *closed, REMEDY]))


def compile_bytecode(python: Path, checkout: Path) -> None:
    """Compile the project and its packages, because some installers leave that to the first start.

    A start without bytecode takes twice as long, and a read-only folder never gets it.
    """
    # Packages may contain files that do not compile, such as templates. The others are compiled anyway.
    with suppress(Unable):
        _run([str(python), "-c", COMPILE, str(checkout / "src")], checkout)


def version_of(python: Path) -> tuple[int, ...]:
    """Return the version, or an empty tuple if it does not run."""
    try:
        said = subprocess.run(
            [str(python), "-I", "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(map(int, said.split()))


def say(message: str) -> None:
    sys.stderr.write(f"everkept: {message}\n")
    sys.stderr.flush()


def _makers(root: Path) -> Iterator[tuple[str, Command]]:
    yield "venv", [sys.executable, "-m", "venv", "--without-pip", str(root)]
    for name, arguments in (("uv", ["venv", "--allow-existing"]), ("virtualenv", [])):
        if tool := _tool(name):
            yield name, [*tool, *arguments, "--python", sys.executable, str(root)]


def _uv(python: Path, checkout: Path) -> Command:
    return [*_need("uv"), "pip", "install", "--python", str(python)]


def _own_pip(python: Path, checkout: Path) -> Command:
    pip = [str(python), "-m", "pip"]
    _run([*pip, "--version"], checkout)
    return [*pip, "install"]


def _ensurepip(python: Path, checkout: Path) -> Command:
    _run([str(python), "-m", "ensurepip"], checkout)
    return _own_pip(python, checkout)


def _pip_of_this_python(python: Path, checkout: Path) -> Command:
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    _run([*pip, "--version"], checkout)
    return [*pip, "install"]


def _bundled_wheel(python: Path, checkout: Path) -> Command:
    wheel = pip_wheel.bundled()
    if wheel is None:
        raise Unable("none found")
    return _pip_from(wheel, python, checkout)


def _virtualenv(python: Path, checkout: Path) -> Command:
    _run([*_need("virtualenv"), "--python", sys.executable, str(python.parents[1])], checkout)
    return _own_pip(python, checkout)


def _pipx(python: Path, checkout: Path) -> Command:
    uv = [*_need("pipx"), "run", "uv"]
    _run([*uv, "--version"], checkout)
    return [*uv, "pip", "install", "--python", str(python)]


def _fetched_wheel(python: Path, checkout: Path) -> Command:
    with tempfile.TemporaryDirectory() as folder:
        try:
            wheel = pip_wheel.fetch(Path(folder), os.environ)
        except OSError as error:
            raise Unable(str(error)) from None
        if wheel is None:
            raise Unable("no index is configured that has it (PIP_INDEX_URL, pip.conf)")
        return _pip_from(wheel, python, checkout)


WAYS: dict[str, Callable[[Path, Path], Command]] = {
    "uv": _uv,
    "pip of the environment": _own_pip,
    "pip from ensurepip": _ensurepip,
    "pip of this Python": _pip_of_this_python,
    "pip from a wheel on this machine": _bundled_wheel,
    "pip from virtualenv": _virtualenv,
    "uv from pipx": _pipx,
    "pip from the configured index": _fetched_wheel,
}


def _pip_from(wheel: Path, python: Path, checkout: Path) -> Command:
    # A wheel of pip can run and install itself.
    pip = [str(python), str(wheel / "pip"), "install", "--no-index", "--no-deps", str(wheel)]
    _run(pip, checkout)
    return _own_pip(python, checkout)


def _need(name: str) -> Command:
    if tool := _tool(name):
        return tool
    raise Unable("not found")


def _tool(name: str) -> Command | None:
    if found := shutil.which(name):
        return [found]
    return [sys.executable, "-m", name] if importlib.util.find_spec(name) else None


def _run(command: Command, checkout: Path) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            # The command inherits the lock: see `locked` in bootstrap.py.
            close_fds=False,
            # Python would import a folder named `pip` in the working folder as pip.
            cwd=checkout,
            env=_build_environment(),
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        raise Unable(str(error)) from None
    if done.returncode:
        tail = done.stdout.strip().splitlines()[-20:]
        raise Unable("\n".join(f"  {line}" for line in tail) or "  it said nothing")


def _build_environment() -> dict[str, str]:
    """Return the variables without settings for a shared Python, because this is a private environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _last_line(error: Exception) -> str:
    return str(error).rpartition("\n")[2].strip()
