"""Trials of a release: each file is installed into an empty environment, as its users do, and runs the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from node_tools import CHECKOUT, PATIENCE, TOOLS, Failed, Missing, say

INSTALLERS = ("uv==0.13.8", "pipx==1.18.4")
EXTRA_MODULES = ("asyncssh", "cryptography", "jwt", "psycopg", "surrealdb", "tokenizers", "websockets")
DEMO_ANSWER = "Orders DB"  # what the demo finds in its graph


class Artifacts(NamedTuple):
    """Files of a release."""

    wheel: Path
    sdist: Path
    bundle: Path
    plugin: Path


class Installers(NamedTuple):
    """Programs that install packages."""

    uv: Path
    pipx: Path


Trial = Callable[[Installers, Artifacts, Path], None]


def find_installers() -> Installers:
    """Return the installers at their fixed versions. Install them into `.tools` if they are missing."""
    root = TOOLS / "installers"
    stamp = root / "versions.txt"
    bin_folder = root / ("Scripts" if os.name == "nt" else "bin")
    if not stamp.is_file() or stamp.read_text("utf-8") != " ".join(INSTALLERS):
        say(f"installing {' and '.join(INSTALLERS)}\n")
        shutil.rmtree(root, ignore_errors=True)
        pip = [str(bin_folder / "python"), "-m", "pip", "install", "--quiet", *INSTALLERS]
        for command in ([sys.executable, "-m", "venv", str(root)], pip):
            done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace")
            if done.returncode != 0:
                raise Missing(f"cannot install {' and '.join(INSTALLERS)}: {(done.stdout + done.stderr)[-1000:]}")
        stamp.write_text(" ".join(INSTALLERS), encoding="utf-8")
    return Installers(bin_folder / "uv", bin_folder / "pipx")


def _try_uv_tool(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    _install_with_uv(installers, str(artifacts.wheel), scratch)


def _try_extras(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    command = (str(installers.uv), "tool", "run", "--python", sys.executable, "--from", f"{artifacts.wheel}[all]")
    _run(scratch, *command, "python", "-c", f"import {', '.join(EXTRA_MODULES)}")


def _try_sdist(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    _install_with_uv(installers, str(artifacts.sdist), scratch)


def _install_with_uv(installers: Installers, package: str, scratch: Path) -> None:
    _run(scratch, str(installers.uv), "tool", "install", "--python", sys.executable, package)
    _use(scratch, scratch / "bin" / "everkept", "uv tool uninstall everkept")
    _run(scratch, str(installers.uv), "tool", "uninstall", "everkept")


def _try_pipx(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    _run(scratch, str(installers.pipx), "install", "--python", sys.executable, str(artifacts.wheel))
    _use(scratch, scratch / "bin" / "everkept", "pipx uninstall everkept")


def _try_uvx_wheel(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    _run_from(installers, str(artifacts.wheel), scratch)


def _try_uvx_git(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    # A full clone, because uv cannot fetch from a shallow one.
    _run(scratch, "git", "clone", "--quiet", "--no-local", str(CHECKOUT), str(scratch / "clone"))
    _run_from(installers, f"git+{(scratch / 'clone').as_uri()}", scratch)


def _run_from(installers: Installers, source: str, scratch: Path) -> None:
    command = (str(installers.uv), "tool", "run", "--python", sys.executable, "--from", source, "everkept")
    _require(DEMO_ANSWER, _run(scratch, *command, "demo"))
    # Its environment is in a cache, so no client may depend on it.
    (scratch / "home" / ".cursor").mkdir()
    _require("uv tool install", _run(scratch, *command, "setup", "cursor", "--yes", status=2))


def _try_bundle(installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    """Start what its host starts, with the demo in place of the server."""
    unpacked = scratch / "bundle"
    _unpack(artifacts.bundle, unpacked)
    config = json.loads((unpacked / "manifest.json").read_text("utf-8"))["server"]["mcp_config"]
    words = [word.replace("${__dirname}", str(unpacked)) for word in config["args"]]
    words[words.index("serve") :] = ["demo"]
    _require(DEMO_ANSWER, _run(scratch, str(installers.uv), *words))


def _try_plugin(_installers: Installers, artifacts: Artifacts, scratch: Path) -> None:
    """Run what its server and hooks run. The first start installs the packages into its data folder."""
    unpacked = scratch / "marketplace"
    _unpack(artifacts.plugin, unpacked)
    (plugin,) = json.loads((unpacked / ".claude-plugin" / "marketplace.json").read_text("utf-8"))["plugins"]
    root = unpacked / plugin["source"]
    named = {"CLAUDE_PLUGIN_ROOT": str(root), "CLAUDE_PLUGIN_DATA": str(scratch / "data")}
    _require(DEMO_ANSWER, _run(scratch, str(root / "everkept"), "demo", variables=named))
    if not (scratch / "data" / "venv").is_dir():
        raise Failed("the plugin's environment is not in its data folder")


def _use(scratch: Path, program: Path, removal: str) -> None:
    """Run the demo, connect a client to the program, start what the client starts, and disconnect it again."""
    _require(DEMO_ANSWER, _run(scratch, str(program), "demo"))
    _run(scratch, str(program), "setup", "cursor", "--yes", "--force")
    file = scratch / "home" / ".cursor" / "mcp.json"
    entry = json.loads(file.read_text("utf-8"))["mcpServers"]["everkept"]
    _run(scratch, entry["command"], *entry["args"])  # a server ends at the end of its input
    _require(removal, _run(scratch, str(program), "uninstall", "--yes"))
    if file.exists():
        raise Failed(f"{file} is still there:\n{file.read_text('utf-8')}")


TRIALS: Mapping[str, Trial] = {
    "wheel, uv tool install": _try_uv_tool,
    "wheel with all extras": _try_extras,
    "wheel, pipx install": _try_pipx,
    "wheel, uvx --from": _try_uvx_wheel,
    "git address, uvx --from": _try_uvx_git,
    "sdist, uv tool install": _try_sdist,
    "bundle, uv run": _try_bundle,
    "plugin, first start": _try_plugin,
}


def _run(scratch: Path, *command: str, status: int = 0, variables: Mapping[str, str] | None = None) -> str:
    """Run a command in an empty home and return its output."""
    home = scratch / "home"
    home.mkdir(parents=True, exist_ok=True)
    foreign = ("EVERKEPT_", "MEMORY_", "CLAUDE_", "XDG_", "PYTHON", "VIRTUAL_ENV", "CODEX_HOME", "GEMINI_CLI_HOME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {
        **{name: str(home) for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")},
        **{name: str(scratch / "bin") for name in ("UV_TOOL_BIN_DIR", "PIPX_BIN_DIR")},
        "UV_TOOL_DIR": str(scratch / "tools"),
        "PIPX_HOME": str(scratch / "pipx"),
        "UV_CACHE_DIR": str(scratch.parent / "uv-cache"),  # the downloads of one release
        "COLUMNS": "120",
    }
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            cwd=home,
            encoding="utf-8",
            env=kept | own | {**(variables or {})},
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    said = done.stdout + done.stderr
    if done.returncode != status:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{said[-3000:]}")
    return said


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            packed.extract(entry, folder)
            if mode := entry.external_attr >> 16:
                (folder / entry.filename).chmod(mode & 0o777)


def _require(text: str, said: str) -> None:
    if text not in said:
        raise Failed(f'"{text}" is not in the output:\n{said[-3000:]}')
