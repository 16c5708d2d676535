"""Ways to create an environment and to install packages, best first.

Called as `installers.py FILE`, it installs the pinned packages of a file into the environment that it runs in.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pip_wheel

Command = list[str]

# Folders whose modules are not used, or rarely. Their bytecode would need 30 MB.
COMPILE = r"""
import compileall, re, sys, sysconfig
unused = re.compile(
    r"[/\\](tests|apsw|google|pip|pygments|setuptools|numpy.(distutils|f2py|ma|polynomial|testing|typing)"
    r"|onnxruntime.(quantization|tools|transformers))[/\\]"
)
for folder in (*sys.argv[1:], *{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
    compileall.compile_dir(folder, quiet=2, rx=unused)
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


class Progress:
    """How far a setup is, in percent. `report` is called at each step forward."""

    def __init__(self, report: Callable[[int], None] = lambda percent: None) -> None:
        self.percent = 0
        self._report = report

    def reach(self, percent: float) -> None:
        if percent > self.percent:
            self.percent = min(int(percent), 100)
            self._report(self.percent)


class TerminalLine:
    """A line that is drawn again at each step, if people watch."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()

    def draw(self, percent: int) -> None:
        if self._is_watched:
            bar = "#" * (percent // 4)
            sys.stderr.write(f"\r  [{bar:<25}] {percent} %")
            sys.stderr.write("\r\033[K" if percent == 100 else "")
            sys.stderr.flush()


def write_percent(percent: int) -> None:
    sys.stderr.write(f"{percent} %\n")
    sys.stderr.flush()


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


def install(python: Path, requirements: Sequence[Path], checkout: Path, progress: Progress) -> None:
    """Install the pinned packages."""
    total = sum(_count_pins(each) for each in requirements)
    chosen = [word for each in requirements for word in ("--requirement", str(each))]
    progress.reach(5)

    def heed(line: str) -> None:
        if line.startswith("Collecting "):
            progress.reach(progress.percent + 60 / max(total, 1))
        elif line.startswith(("Installing collected", "Prepared ")):
            progress.reach(65)

    _install_by_any_way(python, ["--require-hashes", *chosen], checkout, requirements, heed)
    progress.reach(85)


def install_editable(python: Path, checkout: Path) -> None:
    """Install the project itself in place, with what builds it."""
    project = ["--no-deps", "--no-build-isolation", "--editable", str(checkout)]
    _install_by_any_way(python, project, checkout, [checkout], lambda line: None)


def link_source(python: Path, checkout: Path) -> None:
    """Let the environment find the checkout's source. Installing it would need what builds it."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([str(python), "-I", "-c", asked], capture_output=True, check=True, encoding="utf-8")
    path = Path(done.stdout.strip()) / "everkept.pth"
    path.write_text(f"{checkout / 'src'}\n", encoding="utf-8")


def _install_by_any_way(
    python: Path, arguments: Command, checkout: Path, named: Sequence[Path], heed: Callable[[str], None]
) -> None:
    closed: list[str] = []
    for name, way in WAYS.items():
        try:
            installer = way(python, checkout)
        except Unable as error:
            closed.append(f"  {name}: {_last_line(error)}")
            continue
        said = " and ".join(str(each.relative_to(checkout)) for each in named if each != checkout)
        say(f"installing {said or 'the project'} with {name}")
        try:
            _run([*installer, *arguments], checkout, heed)
        except Unable as error:
            if way is not _uv:
                raise StepFailed(f"{name} could not install\n{error}") from None
            # uv ignores pip's settings, which may name the only index that can be reached.
            closed.append(f"  {name}: {_last_line(error)}")
            say(f"uv could not install\n{error}")
        else:
            return
    raise StepFailed("\n".join(["nothing here can install packages", *closed, REMEDY]))


def _count_pins(requirements: Path) -> int:
    """Return about how many packages are installed. Pins with a condition are mostly for other systems."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return sum("==" in line and ";" not in line for line in lines)


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
    # A wheel runs without installation, and an environment without pip is smaller and ready sooner.
    pip = [str(python), str(wheel / "pip")]
    _run([*pip, "--version"], checkout)
    return [*pip, "install", "--no-compile"]


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
        return _install_wheel(wheel, python, checkout)


WAYS: dict[str, Callable[[Path, Path], Command]] = {
    "uv": _uv,
    "pip of the environment": _own_pip,
    "pip from a wheel on this machine": _bundled_wheel,
    "pip of this Python": _pip_of_this_python,
    "pip from ensurepip": _ensurepip,
    "pip from virtualenv": _virtualenv,
    "uv from pipx": _pipx,
    "pip from the configured index": _fetched_wheel,
}


def _install_wheel(wheel: Path, python: Path, checkout: Path) -> Command:
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


def _run(command: Command, checkout: Path, heed: Callable[[str], None] = lambda line: None) -> None:
    """Run a command to its end. `heed` gets each line that it prints."""
    said: deque[str] = deque(maxlen=20)
    try:
        with subprocess.Popen(
            command,
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
        ) as running:
            try:
                for line in running.stdout or ():
                    said.append(f"  {line.rstrip()}")
                    heed(line)
            except BaseException:
                running.kill()
                raise
    except OSError as error:
        raise Unable(str(error)) from None
    if running.returncode:
        raise Unable("\n".join(said) or "  it said nothing")


def _build_environment() -> dict[str, str]:
    """Return the variables without settings for a shared Python, because this is a private environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _last_line(error: Exception) -> str:
    return str(error).rpartition("\n")[2].strip()


if __name__ == "__main__":
    own_checkout = Path(__file__).resolve().parents[1]
    try:
        install(Path(sys.executable), [own_checkout / sys.argv[1]], own_checkout, Progress())
    except StepFailed as failed:
        say(f"set-up failed: {failed}")
        sys.exit(1)
