"""Build the wheel, the sdist, the bundle and the plugin into `dist`, and try each one in an empty environment.

With VERSION, first set that version everywhere and give its changes their section of CHANGELOG.md. If anything fails,
these files are restored. Nothing is committed, tagged or uploaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import ArgumentParser
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from node_tools import CHECKOUT, Failed, Missing, say
from release_trials import TRIALS, Artifacts, find_installers

VERSION_FILES = (
    "src/everkept/__init__.py",
    "server.json",
    "plugin/.claude-plugin/plugin.json",
    ".claude-plugin/marketplace.json",
)
CHANGELOG = "CHANGELOG.md"
NOTES = "release-notes.md"  # the section of this version
MAX_WHEEL_BYTES = 24 * 1024**2
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)  # the first date that the format knows
PLUGIN_CONTENTS = (".claude-plugin", "plugin")  # a marketplace with one plugin
PLACEHOLDERS = {
    "pyproject.toml": ("example.com", "Private :: Do Not Upload"),
    "server.json": ("com.example",),
    "README.md": ("com.example",),
    "docs/install.md": ("example.com",),
}
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_UNRELEASED = "## Unreleased\n"


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="tools/release", description=__doc__, allow_abbrev=False)
    parser.add_argument("version", nargs="?", metavar="VERSION", help="for example 0.2.0; omit it to try what is here")
    parser.add_argument("--only", metavar="TEXT", help="run only the trials whose name contains this")
    options = parser.parse_args(arguments)
    try:
        with _versioned(CHECKOUT, options.version):
            artifacts = build(CHECKOUT, CHECKOUT / "dist")
            _try_all(artifacts, options.only or "")
    except (Failed, Missing) as error:
        say(f"release: {error}\n")
        return 1
    for path in artifacts:
        say(f"{path.stat().st_size / 1024**2:6.1f} MiB  {path}\n")
    for line in _describe_next_steps(CHECKOUT, options.version):
        say(f"{line}\n")
    return 0


def read_version(checkout: Path) -> str:
    found = re.search(r'^__version__ = "(.+)"$', (checkout / VERSION_FILES[0]).read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise Failed(f"{VERSION_FILES[0]} has no __version__")
    return found[1]


@contextmanager
def _versioned(checkout: Path, version: str | None) -> Generator[None, None, None]:
    """Set the version and write its section. Restore the files if the block fails."""
    if version is None:
        yield
        return
    changed = _run_git(checkout, "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise Failed(f"commit or undo these changes first:\n{changed}")
    names = (*VERSION_FILES, CHANGELOG)
    before = {name: (checkout / name).read_bytes() for name in names}
    try:
        set_version(checkout, version)
        write_section(checkout, version, datetime.now(UTC).date().isoformat())
        yield
    except BaseException:
        for name, content in before.items():
            (checkout / name).write_bytes(content)
        raise


def set_version(checkout: Path, version: str) -> None:
    """Write the version into every file that has it. Raise Failed if it is not newer than the present one."""
    if not _VERSION.fullmatch(version):
        raise Failed(f'"{version}" is not a version such as 1.2.0 or 1.2.0rc1')
    old = read_version(checkout)
    if _sort_key(version) < _sort_key(old):
        raise Failed(f"{version} is older than {old}")
    for name in VERSION_FILES:
        file = checkout / name
        text = file.read_text("utf-8")
        if f'"{old}"' not in text:
            raise Failed(f"{name} does not have the version {old}")
        _write(file, text.replace(f'"{old}"', f'"{version}"'))


def write_section(checkout: Path, version: str, day: str) -> str:
    """Move the unreleased changes into a section of the version, and return its text."""
    file = checkout / CHANGELOG
    text = file.read_text("utf-8")
    if re.search(rf"^## {re.escape(version)}\b", text, re.MULTILINE):
        raise Failed(f"{CHANGELOG} has a section of {version} already")
    before, found, after = text.partition(_UNRELEASED)
    changes, separator, older = after.partition("\n## ")
    if not found or not re.search(r"^- ", changes, re.MULTILINE):
        raise Failed(f"{CHANGELOG} names no unreleased changes")
    section = f"## {version} - {day}\n\n{changes.strip()}\n"
    _write(file, f"{before}{_UNRELEASED}\n{section}{separator}{older}")
    return section


def read_section(checkout: Path) -> str:
    """Return the newest section of the changelog that has changes."""
    text = (checkout / CHANGELOG).read_text("utf-8")
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return next((each for each in sections if re.search(r"^- ", each, re.MULTILINE)), "").strip() + "\n"


def build(checkout: Path, folder: Path) -> Artifacts:
    """Build everything from the files here. Two builds of the same commit are equal."""
    from bundle import build as build_bundle  # after the version is set, which the module reads

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = read_version(checkout)
    say(f"building everkept {version}\n")
    moment = _run_git(checkout, "log", "-1", "--format=%ct")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)],
        capture_output=True,
        check=False,
        cwd=checkout,
        encoding="utf-8",
        env=os.environ | {"SOURCE_DATE_EPOCH": moment},
    )
    if done.returncode != 0:
        raise Failed(f"hatchling: {done.stdout}{done.stderr}")
    wheel, sdist = folder / f"everkept-{version}-py3-none-any.whl", folder / f"everkept-{version}.tar.gz"
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        raise Failed(
            f"the wheel has {wheel.stat().st_size / 1024**2:.1f} MiB; the limit is {MAX_WHEEL_BYTES / 1024**2:.0f} MiB"
        )
    plugin = build_plugin(checkout, folder / f"everkept-{version}-plugin.zip")
    _write(folder / NOTES, read_section(checkout))
    return Artifacts(wheel, sdist, build_bundle(folder), plugin)


def build_plugin(checkout: Path, target: Path) -> Path:
    """Write the marketplace with the plugin. Files take the place of links, which many systems do not unpack."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_list_plugin_files(checkout)):
            entry = zipfile.ZipInfo(name, WRITTEN_AT)
            entry.external_attr = (0o100755 if os.access(file, os.X_OK) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return target


def _list_plugin_files(checkout: Path) -> Iterator[tuple[str, Path]]:
    """Return the tracked files with their names in the archive, those of linked folders too."""
    for name in _list_tracked(checkout, *PLUGIN_CONTENTS):
        file = checkout / name
        if not file.is_symlink() or file.is_file():
            yield name, file
            continue
        linked = file.resolve().relative_to(checkout.resolve()).as_posix()
        for inner in _list_tracked(checkout, linked):
            yield f"{name}{inner.removeprefix(linked)}", checkout / inner


def _list_tracked(checkout: Path, *paths: str) -> list[str]:
    return [name for name in _run_git(checkout, "ls-files", "-z", "--", *paths).split("\0") if name]


def _run_git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, check=False, cwd=checkout, encoding="utf-8")
    if done.returncode != 0:
        raise Failed(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _try_all(artifacts: Artifacts, wanted: str) -> None:
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="everkept-release-") as scratch:
        installers = find_installers()
        for number, (name, trial) in enumerate(TRIALS.items()):
            if wanted not in name:
                continue
            began = time.monotonic()
            try:
                trial(installers, artifacts, Path(scratch, str(number)))
            except Failed as error:
                failed.append(name)
                say(f"FAILED  {name}: {error}\n")
            else:
                say(f"passed  {name:28} {time.monotonic() - began:5.1f} s\n")
    if failed:
        raise Failed(f"failed: {', '.join(failed)}")


def _describe_next_steps(checkout: Path, version: str | None) -> Iterator[str]:
    for name, texts in PLACEHOLDERS.items():
        left = [text for text in texts if text in (checkout / name).read_text("utf-8")]
        if left:
            yield f"before an upload, replace in {name}: {', '.join(left)}"
    if version is not None:
        yield f"next: git commit -am 'Release {version}' && git tag v{version}"


def _sort_key(version: str) -> tuple[int, int, int, str]:
    """Return a key that sorts a candidate before its release."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)(.*)", version)
    if numbers is None:
        raise Failed(f'"{version}" is not a version')
    return int(numbers[1]), int(numbers[2]), int(numbers[3]), numbers[4] or "~"


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
