"""Checks of the bundle with the tools of its format: validate, pack, and start a server from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bundle import build
from node_tools import PATIENCE, Failed, Node, install

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tools/mcpb.py", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

# Replaces the host's uv: this environment already has the packages that it would install.
UV = """#!/bin/sh
[ "$1 $2 $4" = "run --project python" ] || exit 64
shift 4
exec "{python}" "$@"
"""


def bundled(node: Node, scratch: Path) -> str:
    bundle = build(scratch)
    unpacked = scratch / "unpacked"
    _mcpb(node, "unpack", str(bundle), str(unpacked))
    _mcpb(node, "validate", str(unpacked / "manifest.json"))
    _mcpb(node, "pack", str(unpacked), str(scratch / "packed.mcpb"))
    _mcpb(node, "info", str(bundle))
    manifest = json.loads((unpacked / "manifest.json").read_text("utf-8"))
    offered = [tool["name"] for tool in _start(manifest, unpacked, scratch)]
    if offered != [tool["name"] for tool in manifest["tools"]]:
        raise Failed(f"the manifest names other tools than the server offers: {offered}")
    return f"{bundle.stat().st_size / 1e6:.0f} MB, started, tools: {len(offered)}"


def _mcpb(node: Node, *arguments: str) -> None:
    program = install(node, "mcpb") / "dist" / "cli" / "cli.js"
    done = node.run(str(program), *arguments)
    if done.returncode != 0:
        raise Failed(f"mcpb {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _start(manifest: dict[str, Any], unpacked: Path, scratch: Path) -> list[dict[str, Any]]:
    """Return the tools of the server that the host would start, with the host's options."""
    config = manifest["server"]["mcp_config"]
    values = {"__dirname": str(unpacked)} | {
        f"user_config.{name}": option["default"] for name, option in manifest["user_config"].items()
    }

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    uv = scratch / "bin" / config["command"]
    uv.parent.mkdir()
    uv.write_text(UV.format(python=sys.executable), encoding="utf-8")
    uv.chmod(0o755)
    done = subprocess.run(
        [str(uv), *map(filled, config["args"])],
        capture_output=True,
        check=False,
        cwd=scratch,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "HOME": str(scratch)}
        | {name: filled(value) for name, value in config["env"].items()},
        input=f"{json.dumps(INITIALIZE)}\n{json.dumps(LIST)}\n",
        timeout=PATIENCE,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    listed = next((answer for answer in answers if answer.get("id") == 2), None)
    if done.returncode != 0 or listed is None:
        raise Failed(f"the bundle's server ended with {done.returncode}: {done.stderr[-2000:]}")
    return listed["result"]["tools"]
