"""Create, repair or update the environment that `run` and `test` use.

Called as `bootstrap.py NEEDS DIRECTORY [--percent]`. NEEDS is `run`, `dev`, or `run` and extras, such as "run postgres
ssh". Uses only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from installers import (
    Progress,
    StepFailed,
    TerminalLine,
    compile_bytecode,
    install,
    install_editable,
    link_source,
    make,
    say,
    version_of,
    write_percent,
)

CHECKOUT = Path(__file__).resolve().parents[1]

RUN, DEV = "run", "dev"
PERCENT_OPTION = "--percent"  # writes a line for each percent

LOCK = ".everkept-lock"
READY = ".everkept-ready"
UNFINISHED = ".everkept-unfinished"


def main(needs: str, directory: str, *options: str) -> int:
    report = write_percent if PERCENT_OPTION in options else TerminalLine().draw
    try:
        ensure(Environment(Path(directory)), needs, Progress(report))
    except StepFailed as error:
        say(f"set-up failed: {error}")
        return 1
    except OSError as error:
        say(f"set-up failed: {error}")
        say("EVERKEPT_VENV=DIRECTORY puts the environment in another folder")
        return 1
    except KeyboardInterrupt:
        say("set-up interrupted; the next start begins it again")
        return 130
    return 0


def ensure(environment: Environment, needs: str, progress: Progress) -> None:
    """Make sure that the environment holds what is needed, even if another process sets it up too."""
    if environment.is_current(needs):
        return
    with locked(environment.root / LOCK):
        # Another start may have finished it while this one waited.
        if environment.is_current(needs):
            return
        began = time.monotonic()
        if environment.is_sound():
            environment.upgrade(needs, progress)
        else:
            environment.make(needs, progress)
        say(f"ready after {time.monotonic() - began:.0f} s")


@dataclass(frozen=True, slots=True)
class Content:
    """What an environment holds: one line each in its marker, which `environment.sh` reads."""

    checkout: str
    place: str
    requirements: str  # names of files in `requirements`
    fingerprint: str
    python: str


class Environment:
    """A folder with Python and packages, and the files that record its state.

    READY is written last and lists the content. UNFINISHED exists while packages change, so that the rest of an
    interrupted setup is never used.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        self._ready = root / READY
        self._unfinished = root / UNFINISHED

    def is_current(self, needs: str) -> bool:
        read_at = time.time_ns()
        content = self._content()
        if content is None or combine(content.requirements, needs) != content.requirements:
            return False
        if content.checkout != str(CHECKOUT):
            return False
        if content.fingerprint != fingerprint(content.requirements) or not self.python.exists():
            return False
        # Use the time at which the requirements were read, since later changes are newer. A user without write access
        # can still start.
        with suppress(OSError):
            os.utime(self._ready, ns=(read_at, read_at))
        return True

    def is_sound(self) -> bool:
        """Return whether packages can be installed into it."""
        if self._ready.exists():
            content = self._content()
            # The system may have replaced the Python behind the links.
            return content is not None and content.python == _dotted(version_of(self.python))
        if self._unfinished.exists():
            return False
        # Someone created an environment here by hand: keep it, because they may be working in it.
        return self._is_in_its_usual_place() and version_of(self.python) >= (3, 11)

    def upgrade(self, needs: str, progress: Progress) -> None:
        """Change packages in place, because a server may be running from here."""
        content = self._content()
        if content:
            # An environment never shrinks: its owner may be using the larger set.
            needs = combine(content.requirements, needs)
            self._ready.replace(self._unfinished)
        else:
            self._unfinished.touch()
        try:
            self._fill(needs, progress)
        except StepFailed:
            # It still works as before, and the next start tries again.
            if content:
                self._unfinished.replace(self._ready)
            else:
                self._unfinished.unlink()
            raise

    def make(self, needs: str, progress: Progress) -> None:
        if self._is_somebody_elses():
            raise OSError(f"{self.root} holds other things than an environment of everkept")
        self._unfinished.touch()
        self._ready.unlink(missing_ok=True)
        self._clear()
        say(f"making {self.root} with Python {_dotted(sys.version_info[:3])}")
        make(self.root, self.python, CHECKOUT)
        self._fill(needs, progress)

    def _fill(self, needs: str, progress: Progress) -> None:
        read_at = time.time_ns()
        content = Content(
            checkout=str(CHECKOUT),
            place=str(self.root),
            requirements=needs,
            fingerprint=fingerprint(needs),
            python=_dotted(version_of(self.python)),
        )
        install(self.python, list_files(needs), CHECKOUT, progress)
        if needs == DEV:
            install_editable(self.python, CHECKOUT)
        else:
            link_source(self.python, CHECKOUT)
        compile_bytecode(self.python, CHECKOUT)
        draft = self.root / f"{READY}.new"
        draft.write_text("\n".join([*astuple(content), ""]), encoding="utf-8")
        os.utime(draft, ns=(read_at, read_at))
        draft.replace(self._ready)
        self._unfinished.unlink()
        progress.reach(100)

    def _content(self) -> Content | None:
        """Return the content, or None if the folder was moved: its scripts contain absolute paths."""
        try:
            lines = self._ready.read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        content = Content(*lines) if len(lines) == 5 else None
        return content if content and content.place == str(self.root) else None

    def _clear(self) -> None:
        for path in self.root.iterdir():
            if path.name in {LOCK, UNFINISHED}:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _is_in_its_usual_place(self) -> bool:
        return self.root == CHECKOUT / ".venv"

    def _is_somebody_elses(self) -> bool:
        names = {path.name for path in self.root.iterdir()} - {LOCK}
        return bool(names) and not names & {READY, UNFINISHED} and not self._is_in_its_usual_place()


def combine(held: str, needs: str) -> str:
    """Return the names of both, once each. The environment for development has all extras."""
    names = {*held.split(), *needs.split()}
    return DEV if DEV in names else " ".join([RUN, *sorted(names - {RUN})])


def list_files(needs: str) -> list[Path]:
    return [CHECKOUT / f"requirements/{name}.txt" for name in needs.split()]


def fingerprint(needs: str) -> str:
    """Return a digest of everything that decides which packages are installed."""
    digest = hashlib.sha256()
    for path in [CHECKOUT / "pyproject.toml", *list_files(needs)]:
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock that ends with this process and the commands it started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(descriptor):
            say(f"waiting for another set-up of {path.parent}")
            _wait_for_lock(descriptor)
        if not _is_still_at(path, descriptor):
            raise OSError(f"{path.parent} was removed in the meantime; start again")
        # A command that outlives a killed setup still writes, so it must keep the lock.
        os.set_inheritable(descriptor, True)
        yield
    finally:
        os.close(descriptor)


def _is_still_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        while True:
            # It stops by itself after ten seconds.
            with suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
