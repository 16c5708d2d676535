"""A scratch checkout that is set up without a network."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).parents[2]

# Stands for the program that gets installed: says how it was called and passes on what it is told.
# As a server, it repeats each request in its answer.
PROGRAM = """import json, shutil, sys
print("ran", *sys.argv[1:], flush=True)
if sys.argv[1] == "relay":
    shutil.copyfileobj(sys.stdin, sys.stdout)
if sys.argv[1] == "serve":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"id": message["id"], "result": {"asked": message["method"]}}), flush=True)
"""

# Stands for uv, so that nothing is fetched: `uv pip install --python ENVIRONMENT/bin/python ...`.
# Like uv, it compiles nothing.
UV = f"""#!/bin/sh
echo "$*" >>"$UV_LOG"
case $* in *--require-hashes*) [ -z "${{UV_GATE:-}}" ] || read -r go <"$UV_GATE" ;; esac
if [ -n "${{UV_FAILS:-}}" ]; then echo "the disk is full"; exit 2; fi
bin=${{4%/*}}
for packages in "${{bin%/*}}"/lib/python*/site-packages; do
    echo "x = 1" >"$packages/dependency.py"
    echo "print x" >"$packages/template.py"
    cat >"$packages/everkept.py" <<'END'
{PROGRAM}END
done
"""


class Checkout:
    """A scratch copy of what set-up needs of the project, and of nothing that needs a network."""

    def __init__(self, root: Path, bench: Path) -> None:
        self.root = root
        self.folder = Path("/")  # the working folder of each start
        self.environment = root / ".venv"
        self.log = bench / "uv.log"
        self.gate = bench / "gate"
        self.variables = {
            "HOME": str(bench),
            "PATH": f"{bench / 'bin'}:/usr/bin:/bin",
            "EVERKEPT_PYTHON": sys.executable,
            "UV_LOG": str(self.log),
        }

    def start(self, *arguments: str, by: str = "run", **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / by), *arguments],
            env=self.variables | variables,
            cwd=self.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_hear_interrupts,
        )

    def run(
        self, *arguments: str, by: str = "run", told: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments, by=by, **variables) as started:
            stdout, stderr = started.communicate(told)
        return subprocess.CompletedProcess(arguments, started.returncode, stdout, stderr)

    def start_and_stop(self, sent: signal.Signals, **variables: str) -> int:
        """Ends a set-up while packages are being installed."""
        # The gate opens when its other end does: the installer is at work then.
        with self.start("x", UV_GATE=str(self.gate), **variables) as started, self.gate.open("w"):
            os.killpg(started.pid, sent)
            started.communicate()
        return started.returncode

    def installs(self) -> list[str]:
        return re.findall(r"requirements/(\w+)\.txt", self.log.read_text())

    def date(self, name: str, *, seconds_ago: int) -> None:
        when = time.time() - seconds_ago
        os.utime(self.root / name, (when, when))

    def change(self, name: str) -> None:
        path = self.root / name
        path.write_text(path.read_text() + "# changed\n")


def _hear_interrupts() -> None:
    """A shell that runs the tests in the background lets them ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def scratch_checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    bench = tmp_path / "bench"
    shutil.copytree(PROJECT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("run", "test"):
        shutil.copy(PROJECT / name, root / name)
    (root / "tools/check.py").write_text("print('checked')\n")
    (root / "requirements").mkdir()
    for name in ("run", "dev", "ssh"):
        (root / f"requirements/{name}.txt").touch()
    (root / "src").symlink_to(PROJECT / "src")  # from which the server of a first start takes the protocol
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "everkept"\nversion = "1"\n'
    )
    (bench / "bin").mkdir(parents=True)
    uv = bench / "bin/uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    os.mkfifo(bench / "gate")
    checkout = Checkout(root, bench)
    # Some shells compare whole seconds, and a checkout is older than its environment.
    for name in ("pyproject.toml", "requirements/run.txt", "requirements/dev.txt", "requirements/ssh.txt"):
        checkout.date(name, seconds_ago=120)
    return checkout
