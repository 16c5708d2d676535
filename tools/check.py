"""Run every check of the project, in the environment it is started from.

`--all` runs the thorough tests too. `--changed` runs those that belong to the changes since the last commit on record.
`--only NAME` runs one check. Any other argument goes to pytest, which is then the only check.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from changed import options_since_record

CHECKOUT = Path(__file__).resolve().parents[1]

# One more than there are cores, because many tests wait for a process or a disk.
WORKERS = str((os.cpu_count() or 1) + 1)

# The tests come last, so that pytest's summary ends the output.
CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["basedpyright", "--pythonpath", sys.executable],
    "imports": ["lint-imports"],
    "dependencies": ["deptry", "src"],
    "tests": ["pytest", "-n", WORKERS, "--dist", "worksteal"],
}

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3  # bytes; the tests use a fifth of that


def main() -> int:
    parser = ArgumentParser(prog="test", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("--only", action="append", choices=CHECKS, default=[])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--changed", action="store_true")
    options, for_pytest = parser.parse_known_args()
    extent = ["--all"] if options.all else []
    if options.changed and not options.all:
        extent = options_since_record(CHECKOUT)
    # Delete what the tests wrote to memory even if this process is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if for_pytest and not options.only:
        return _run(["pytest", *extent, *for_pytest]).returncode
    failed = _list_failed(options.only or list(CHECKS), [*extent, *for_pytest])
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


def _list_failed(names: list[str], for_pytest: list[str]) -> list[str]:
    """Run the checks, side by side but for the tests, which come last and take all cores."""
    tests, others = [name for name in names if name == "tests"], [name for name in names if name != "tests"]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        warm = threads.submit(_compile_tests) if tests and others else None
        passed = list(threads.map(_passes, others))
    if warm is not None:
        warm.result()
    failed = [name for name, has_passed in zip(others, passed, strict=True) if not has_passed]
    return failed + [name for name in tests if not _tests_pass([*CHECKS[name], *for_pytest])]


def _passes(name: str) -> bool:
    command, began = CHECKS[name], time.monotonic()
    done = _run(command, output=subprocess.PIPE)
    outcome = f"{time.monotonic() - began:.1f} s" if done.returncode == 0 else f"FAILED\n{done.stdout}"
    sys.stderr.write(f"{name}: {' '.join(command)} {outcome}\n")
    return done.returncode == 0


def _compile_tests() -> None:
    """Leave the bytecode of all tests, which each worker would otherwise compile for itself."""
    command = ["pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    _run(command, environment=_keep_bytecode(), output=subprocess.PIPE)


def _keep_bytecode() -> dict[str, str]:
    """Return our environment. Without bytecode, hundreds of processes would compile the same files."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _tests_pass(command: list[str]) -> bool:
    sys.stderr.write(f"tests: {' '.join(command)}\n")
    place = MEMORY if _has_room(MEMORY) else None
    with TemporaryDirectory(prefix="checks-", dir=place, ignore_cleanup_errors=True) as folder:
        chosen = _keep_bytecode()
        options = ["-o", f"cache_dir={folder}/cache"]
        if place is not None:
            Path(folder).chmod(0o755)  # databases run as a user with fewer permissions
            chosen["TMPDIR"] = folder
            options.append(f"--basetemp={folder}/t")  # some outputs cannot show long paths
        return _run([*command, *options], environment=chosen).returncode == 0


def _has_room(place: Path) -> bool:
    """Return whether memory can hold everything the tests write; a disk would slow down each step."""
    if sys.platform != "linux" or not os.access(place, os.W_OK):
        return False
    is_for_data_alone = os.statvfs(place).f_flag & os.ST_NOEXEC
    return not is_for_data_alone and shutil.disk_usage(place).free >= ROOM


def _run(
    command: list[str], *, environment: Mapping[str, str] | None = None, output: int | None = None
) -> subprocess.CompletedProcess[str]:
    program = shutil.which(command[0], path=sysconfig.get_path("scripts")) or command[0]
    return subprocess.run(
        [program, *command[1:]],
        check=False,
        cwd=CHECKOUT,
        env=environment,
        errors="replace",
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
