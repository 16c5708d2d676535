"""A release gets one version, a section of the changelog, and a plugin that needs no links."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scratch_checkout import PROJECT

CHANGES = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.0.9 - 2026-01-01\n\n- The first.\n"


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    sys.path.insert(0, str(PROJECT / "tools"))
    try:
        return runpy.run_path(str(PROJECT / "tools/release.py"))
    finally:
        sys.path.remove(str(PROJECT / "tools"))


@pytest.fixture
def checkout(tmp_path: Path, release: dict[str, Any]) -> Path:
    """A checkout at the present version, with changes that are not released."""
    for name in release["VERSION_FILES"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES, encoding="utf-8")
    return tmp_path


def test_a_version_is_set_wherever_it_is_named(checkout: Path, release: dict[str, Any]) -> None:
    old = release["read_version"](checkout)
    release["set_version"](checkout, "7.8.9")
    assert release["read_version"](checkout) == "7.8.9"
    server = json.loads((checkout / "server.json").read_text("utf-8"))
    assert [server["version"], server["packages"][0]["version"]] == ["7.8.9", "7.8.9"]
    assert not [name for name in release["VERSION_FILES"] if f'"{old}"' in (checkout / name).read_text("utf-8")]


@pytest.mark.parametrize("version", ["7", "v7.8.9", "0.0.1", "latest", "0.1.0rc1"])
def test_a_version_that_cannot_follow_changes_nothing(checkout: Path, release: dict[str, Any], version: str) -> None:
    before = {name: (checkout / name).read_bytes() for name in release["VERSION_FILES"]}
    with pytest.raises(release["Failed"]):
        release["set_version"](checkout, version)
    assert {name: (checkout / name).read_bytes() for name in release["VERSION_FILES"]} == before


def test_changes_get_the_section_of_their_version(checkout: Path, release: dict[str, Any]) -> None:
    section = release["write_section"](checkout, "7.8.9", "2026-11-19")
    text = (checkout / "CHANGELOG.md").read_text("utf-8")
    assert text == CHANGES.replace("## Unreleased\n", "## Unreleased\n\n## 7.8.9 - 2026-11-19\n")
    assert section == "## 7.8.9 - 2026-11-19\n\n### Added\n\n- A thing.\n"
    assert release["read_section"](checkout) == section
    for version in ("7.8.9", "7.8.10"):  # the section exists already, then nothing is left to release
        with pytest.raises(release["Failed"]):
            release["write_section"](checkout, version, "2026-11-20")
    assert (checkout / "CHANGELOG.md").read_text("utf-8") == text


def test_a_release_that_fails_leaves_the_checkout_unchanged(checkout: Path, release: dict[str, Any]) -> None:
    def git(*arguments: str) -> str:
        name = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        done = subprocess.run(["git", *name, *arguments], capture_output=True, check=True, cwd=checkout, text=True)
        return done.stdout

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "Start")
    versions: list[str] = []

    def fail() -> None:
        with release["_versioned"](checkout, "7.8.9"):
            versions.append(release["read_version"](checkout))
            raise release["Failed"]("a trial failed")

    with pytest.raises(release["Failed"]):
        fail()
    assert versions == ["7.8.9"]
    assert git("status", "--porcelain") == ""
    (checkout / "CHANGELOG.md").write_text("my own change", encoding="utf-8")
    with pytest.raises(release["Failed"], match="commit"), release["_versioned"](checkout, "7.8.9"):
        pass
    assert (checkout / "CHANGELOG.md").read_text("utf-8") == "my own change"


def test_the_plugin_is_packed_with_files_in_place_of_links(tmp_path: Path, release: dict[str, Any]) -> None:
    target = release["build_plugin"](PROJECT, tmp_path / "plugin.zip")
    with zipfile.ZipFile(target) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert archive.read("plugin/run") == (PROJECT / "run").read_bytes()
        archive.extractall(tmp_path / "unpacked")
    assert {"plugin/src/everkept/__main__.py", "plugin/tools/bootstrap.py", ".claude-plugin/marketplace.json"} <= set(
        modes
    )
    assert all(mode & 0o170000 == 0o100000 for mode in modes.values())
    assert (modes["plugin/everkept"] & 0o111, modes["plugin/LICENSE"] & 0o111) == (0o111, 0)
    (source,) = json.loads((tmp_path / "unpacked/.claude-plugin/marketplace.json").read_text("utf-8"))["plugins"]
    assert (tmp_path / "unpacked" / source["source"] / ".mcp.json").is_file()
    assert os.access(PROJECT / "tools/release", os.X_OK)
