"""Build the bundle for hosts such as Claude Desktop: `dist/everkept-VERSION.mcpb`.

It contains the tracked files. Two builds of the same files are equal.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from everkept import __version__
from everkept.app.app import App
from everkept.clients.own_command import ISOLATED_MODULE
from everkept.settings import read_settings

CHECKOUT = Path(__file__).resolve().parents[1]
CONTENTS = ("LICENSE", "README.md", "src")  # besides the generated files
UNUSED_SECTIONS = ("project.optional-dependencies", "dependency-groups")
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)  # the first date that the format knows


def build(folder: Path) -> Path:
    """Write the bundle into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"everkept-{__version__}.mcpb"
    draft = target.with_suffix(".new")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(_files().items()):
            entry = zipfile.ZipInfo(name, WRITTEN_AT)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return draft.replace(target)


def _files() -> dict[str, bytes]:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", *CONTENTS], capture_output=True, check=True, cwd=CHECKOUT, encoding="utf-8"
    ).stdout.split("\0")
    present = [name for name in tracked if name and (CHECKOUT / name).is_file()]
    written = {
        "manifest.json": json.dumps(manifest(), ensure_ascii=False, indent=2) + "\n",
        "pyproject.toml": project(),
    }
    return {name: (CHECKOUT / name).read_bytes() for name in present} | {
        name: text.encode() for name, text in written.items()
    }


def manifest() -> dict[str, Any]:
    settings = read_settings({}, {})
    return {
        "manifest_version": "0.4",
        "name": "everkept",
        "display_name": "Everkept",
        "version": __version__,
        "description": "One memory for every AI assistant, on your own machine.",
        "long_description": (
            "Keeps memories, a knowledge graph for each project and past conversations, and finds "
            "them by words and by meaning. No account, no language model, and nothing leaves the "
            "machine. The first start downloads the Python packages that it needs."
        ),
        "author": {"name": "Everkept"},
        "license": "Apache-2.0",
        "keywords": ["memory", "knowledge-graph", "history"],
        # The packages are made for one system and one Python each. The host's uv gets the right
        # ones, and Python too, which many of its users do not have.
        "server": {
            "type": "uv",
            "entry_point": "src/everkept/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": [
                    *("run", "--project", "${__dirname}"),
                    *("python", *ISOLATED_MODULE, "serve", "--project", "auto"),
                ],
                "env": {"EVERKEPT_TOOLSETS": "${user_config.toolsets}"},
            },
        },
        "user_config": {
            "toolsets": {
                "type": "string",
                "title": "Tools",
                "description": "Families of tools to offer, with commas: memories, graph, history, "
                "bank, gateway; or all. Empty: the first three, and a gateway that has a file.",
                "default": "",
            }
        },
        "tools": [{"name": tool.name, "description": tool.description} for tool in App(settings).tools],
        "compatibility": {"platforms": ["darwin", "win32", "linux"], "runtimes": {"python": ">=3.11"}},
    }


def project() -> str:
    """Return the project file with what uv must know: tested versions, and only what a server needs.

    uv resolves extras and groups too, even if it installs none, and frameworks need other versions than the server. A
    bundle cannot get an extra later, so it has the one that its gateway may need.
    """
    files = [CHECKOUT / "requirements" / name for name in ("run.txt", "remote.txt")]
    requirements = "".join(path.read_text("utf-8") for path in files)
    pins = dict.fromkeys(re.findall(r"^([\w.-]+==[^\\\n]+?)\s*\\?$", requirements, re.MULTILINE))
    lines = ["[tool.uv]", "default-groups = []", "constraint-dependencies = ["]
    lines += [f"    {json.dumps(pin)}," for pin in pins]
    own = (CHECKOUT / "pyproject.toml").read_text("utf-8")
    for needed in tomllib.loads(own)["project"]["optional-dependencies"]["remote"]:
        own = own.replace("dependencies = [", f"dependencies = [\n    {json.dumps(needed)},", 1)
    for section in UNUSED_SECTIONS:
        own = re.sub(rf"^\[{re.escape(section)}\]\n.*?(?=^\[)", "", own, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([own, *lines, "]", ""])


if __name__ == "__main__":
    sys.stdout.write(f"{build(CHECKOUT / 'dist')}\n")
