"""Runs every check of the project, in the environment it is started from.

`--only NAME` runs the named check; any other argument goes to pytest, which then runs alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import time
from argparse import ArgumentParser
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

# The tests come last, so that on success the summary of pytest closes the output.
CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["basedpyright", "--pythonpath", sys.executable],
    "imports": ["lint-imports"],
    "dependencies": ["deptry", "src"],
    "tests": ["pytest", "-n", "auto"],
}


def main() -> int:
    parser = ArgumentParser(prog="test", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("--only", action="append", choices=CHECKS, default=[])
    options, for_pytest = parser.parse_known_args()
    if for_pytest and not options.only:
        return _run(["pytest", *for_pytest]).returncode
    names = options.only or list(CHECKS)
    failed = [name for name in names if not _passes(name, for_pytest)]
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


def _passes(name: str, for_pytest: list[str]) -> bool:
    command = CHECKS[name]
    sys.stderr.write(f"{name}: {' '.join(command)} ")
    sys.stderr.flush()
    if name == "tests":
        sys.stderr.write("\n")
        return _run([*command, *for_pytest]).returncode == 0
    began = time.monotonic()
    done = _run(command, output=subprocess.PIPE)
    seconds = f"{time.monotonic() - began:.1f} s"
    sys.stderr.write(f"{seconds}\n" if done.returncode == 0 else f"{seconds} FAILED\n{done.stdout}")
    return done.returncode == 0


def _run(command: list[str], *, output: int | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which(command[0], path=sysconfig.get_path("scripts")) or command[0]
    return subprocess.run(
        [program, *command[1:]],
        check=False,
        cwd=CHECKOUT,
        errors="replace",
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
