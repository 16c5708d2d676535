"""A gateway's file in front of a server that is made for tests."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ACTOR = Path(__file__).parents[2] / "support" / "upstream_actors.py"
JSON = dict[str, Any]

TOOLS: list[JSON] = [
    {
        "name": "search",
        "description": "Finds notes.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "limit": {"type": "number"}},
            "required": ["text"],
        },
    },
    {
        "name": "add",
        "description": "Adds a note.",
        "inputSchema": {"type": "object", "properties": {"note": {"type": "string"}}},
    },
]

Actor = Callable[..., JSON]
Write = Callable[..., Path]


@pytest.fixture
def tools_file(tmp_path: Path) -> Path:
    """What the server lists."""
    path = tmp_path / "listed.json"
    path.write_text(json.dumps(TOOLS), encoding="utf-8")
    return path


@pytest.fixture
def actor(tools_file: Path) -> Actor:
    """The server as a gateway's file names it."""

    def made(*options: object, tools: Path | None = tools_file) -> JSON:
        listed = [] if tools is None else ["--tools", str(tools)]
        return {"command": sys.executable, "args": [str(ACTOR), *listed, *map(str, options)]}

    return made


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the gateway's file, which commands read from then on."""
    path = tmp_path / "tools.json"
    monkeypatch.setenv("EVERKEPT_GATEWAY_CONFIG", str(path))

    def written(config: Any) -> Path:
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        path.write_text(text, encoding="utf-8")
        return path

    return written
