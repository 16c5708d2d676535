"""The wheel, installed into an environment of its own: it has all that it needs, and clients start it."""

import email
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from everkept import __version__
from scratch_checkout import PROJECT
from server_processes import HANG, INITIALIZE, environment

LARGEST = 24 * 1024**2  # bytes; the model has 22 million of them
BIN = "Scripts" if sys.platform == "win32" else "bin"
URLS = {"Homepage", "Documentation", "Source", "Issues", "Changelog"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), "wheel")


def built(folder: Path, target: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        capture_output=True,
        check=False,
        cwd=PROJECT,
        encoding="utf-8",
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with the packages it depends on from this one."""
    root = tmp_path_factory.mktemp("installed") / "everkept"
    venv.create(root, symlinks=sys.platform != "win32")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(root), "platbase": str(root)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(here)) + "\n", encoding="utf-8")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    return home


def at_home(home: Path) -> Mapping[str, str]:
    foreign = ("PYTHON", "XDG_", "VIRTUAL_ENV", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME")
    kept = {name: value for name, value in environment().items() if not name.startswith(foreign)}
    folders = {name: str(home) for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")}
    return kept | folders


def ran(root: Path, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(root / BIN / "python"), "-m", "everkept", *arguments],
        capture_output=True,
        check=False,
        cwd=home,
        encoding="utf-8",
        env=at_home(home),
        stdin=subprocess.DEVNULL,
        timeout=HANG,
    )


def test_it_is_small_and_holds_the_program_alone(wheel: Path) -> None:
    assert wheel.stat().st_size <= LARGEST
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"everkept", f"everkept-{__version__}.dist-info"}
    shipped = {path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*") if path.is_file()}
    assert {name for name in shipped if "__pycache__" not in name} <= names


def test_the_source_distribution_holds_the_same_program(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built(tmp_path, "sdist")) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as packed:
        program = {f"src/{name}" for name in packed.namelist() if name.startswith("everkept/")}
    assert program <= sources
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= sources


def test_its_metadata_follows_the_rules_of_indexes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = email.message_from_bytes(archive.read(f"everkept-{__version__}.dist-info/METADATA"))
        scripts = archive.read(f"everkept-{__version__}.dist-info/entry_points.txt").decode()
    urls = dict(line.split(", ", 1) for line in told.get_all("Project-URL", []))
    assert set(urls) == URLS
    assert all(url.startswith("https://") for url in urls.values())
    classifiers = told.get_all("Classifier", [])
    # An expression of the license excludes the old classifiers for licenses.
    assert told["License-Expression"] == "Apache-2.0"
    assert not [each for each in classifiers if each.startswith("License ::")]
    assert "Programming Language :: Python :: 3 :: Only" in classifiers
    assert told["Requires-Python"] == ">=3.11"
    extras = set(told.get_all("Provides-Extra", []))
    assert {"ssh", "surreal", "postgres", "models", "peers", "all"} <= extras
    assert "everkept = everkept.__main__:main" in scripts
    assert "mcp-name: " in str(told.get_payload())


def test_a_client_starts_the_installed_program(installed: Path, home: Path) -> None:
    done = ran(installed, home, "setup", "cursor", "--yes")
    assert done.returncode == 0, done.stderr
    entry = json.loads((home / ".cursor" / "mcp.json").read_text("utf-8"))["mcpServers"]["everkept"]
    assert Path(entry["command"]) == installed / BIN / ("python.exe" if sys.platform == "win32" else "python")
    hooks = (home / ".cursor" / "hooks.json").read_text("utf-8")
    assert (installed / BIN / "python").as_posix() in hooks
    assert [tool["name"] for tool in listed([entry["command"], *entry["args"]], home)]
    assert "Orders DB" in ran(installed, home, "demo").stdout


def listed(command: list[str], home: Path) -> list[dict[str, Any]]:
    """What the server offers that a client starts in its own folder."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        check=True,
        cwd=home,
        encoding="utf-8",
        env=at_home(home),
        input="".join(f"{json.dumps(each)}\n" for each in messages),
        timeout=HANG,
    )
    answers = {answer.get("id"): answer for answer in map(json.loads, done.stdout.splitlines())}
    return answers[2]["result"]["tools"]


def test_it_leaves_and_says_how_it_is_removed(installed: Path, home: Path) -> None:
    ran(installed, home, "setup", "cursor", "--yes")
    done = ran(installed, home, "uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    assert not (home / ".cursor" / "mcp.json").exists()
    assert re.search(r"pip uninstall .*everkept", done.stdout)
    for name, words in (("uv-receipt.toml", "uv tool"), ("pipx_metadata.json", "pipx")):
        (installed / name).touch()
        assert f"`{words} uninstall everkept`" in ran(installed, home, "uninstall", "--yes").stdout
        (installed / name).unlink()


def test_clients_are_not_connected_to_an_environment_in_a_cache(installed: Path, home: Path) -> None:
    tag = installed.parent / "CACHEDIR.TAG"
    tag.touch()
    try:
        refused = ran(installed, home, "setup", "cursor", "--yes")
        assert (refused.returncode, [*(home / ".cursor").iterdir()]) == (2, [])
        assert "uv tool install" in refused.stderr
        assert ran(installed, home, "setup", "cursor", "--print").returncode == 0
        assert ran(installed, home, "setup", "cursor", "--yes", "--force").returncode == 0
    finally:
        tag.unlink()
