"""Run of the official memory server behind the gateway, with the unchanged ready-made file."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from inspecting import Inspection, calling, environment, everkept, inspect, serve, server, token
from node_tools import Failed, Node, install

from everkept.cli.selftest_workers import CallFailed, SelftestConnection
from everkept.core.json_text import parse_json

ENTITY = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
ENDING = 20  # seconds until a process must have ended
MOST_TRIES = 20  # a call may be the first to notice that the server ended, and fail


@dataclass(frozen=True)
class Ready:
    """Write the ready-made file to a new folder, and return it with the names of its tools."""

    file: Path
    store: Path  # where server-memory keeps its graph
    names: dict[str, str]

    @property
    def options(self) -> list[str]:
        return ["--toolsets", "gateway", "--gateway-config", str(self.file)]


def server_memory_behind_the_gateway(node: Node, scratch: Path) -> str:
    with _ready(node, scratch) as ready:
        checked = everkept("gateway", "check", "--gateway-config", str(ready.file))
        if checked.returncode != 0:
            raise Failed(f"gateway check: {checked.stdout}{checked.stderr}")
        wire = SelftestConnection([*serve(scratch / "data"), *ready.options], environment=environment())
        try:
            wire.initialize("clients")
            _keep_and_find(wire, ready)
            (behind,) = _behind(wire, node)
            behind.kill()
            behind.wait(ENDING)
            _find_again(wire, ready)
            started = _behind(wire)
        finally:
            wire.close()
        _, left = psutil.wait_procs(started, timeout=ENDING)
        if left:
            raise Failed(f"what the server started outlives it: {left}")
    return f"tools: {len(ready.names)}, no drift; killed, started again, gone"


def inspector_through_the_gateway_on_stdio(node: Node, scratch: Path) -> str:
    with _ready(node, scratch) as ready:
        return inspect(node, _inspections(ready), [*serve(scratch / "data"), *ready.options])


def inspector_through_the_gateway_on_http(node: Node, scratch: Path) -> str:
    data_dir = scratch / "data"
    bearer = f"Authorization: Bearer {token(data_dir)}"
    with _ready(node, scratch) as ready, server(data_dir, *ready.options) as url:
        return inspect(node, _inspections(ready), [url], "--header", bearer)


def _inspections(ready: Ready) -> list[Inspection]:
    entities = f"entities={json.dumps([ENTITY])}"
    unknown = json.dumps([{"entityName": "Nobody", "contents": ["is not there"]}])
    return [
        (["tools/list", "--strict"], 0, f'"{ready.names["create_entities"]}"'),
        (calling(ready.names["create_entities"], entities), 0, "Ada"),
        (calling(ready.names["search_nodes"], "query=program"), 0, "Ada"),
        (calling(ready.names["add_observations"], f"observations={unknown}"), 5, "Nobody"),
    ]


@contextmanager
def _ready(node: Node, scratch: Path) -> Generator[Ready, None, None]:
    """Provide an `npx` that always starts the package installed here."""
    program = install(node, "server-memory") / "dist" / "index.js"
    file, store, folder = scratch / "tools.json", scratch / "memory.jsonl", scratch / "bin"
    folder.mkdir()
    started = shlex.join([f"MEMORY_FILE_PATH={store}", node.program, str(program)])
    (folder / "npx").write_text(f"#!/bin/sh\nexec env {started}\n", "utf-8")
    (folder / "npx").chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{path}"
    try:
        made = everkept("gateway", "init", "--ready", "server-memory", "--gateway-config", str(file))
        if made.returncode != 0:
            raise Failed(f"gateway init: {made.stdout}{made.stderr}")
        tools: list[dict[str, Any]] = parse_json(file.read_text("utf-8"))["tools"]
        yield Ready(file, store, {tool["upstream"]["tool"]: tool["name"] for tool in tools})
    finally:
        os.environ["PATH"] = path


def _keep_and_find(wire: SelftestConnection, ready: Ready) -> None:
    wire.call(ready.names["create_entities"], {"entities": [ENTITY]})
    _find(wire, ready)
    kept = [json.loads(line) for line in ready.store.read_text("utf-8").splitlines()]
    if not any(line.get("name") == "Ada" for line in kept):
        raise Failed(f"what was kept is not in the file of server-memory: {kept}")


def _find(wire: SelftestConnection, ready: Ready) -> None:
    found = wire.call(ready.names["search_nodes"], {"query": "first program"})
    if [entity["name"] for entity in found["entities"]] != ["Ada"]:
        raise Failed(f"what was kept is not found: {found}")


def _find_again(wire: SelftestConnection, ready: Ready) -> None:
    for _ in range(MOST_TRIES):
        try:
            _find(wire, ready)
        except CallFailed as error:
            if error.code != "upstream_unavailable":
                raise Failed(f"after the server behind was killed: {error}") from error
        else:
            return
    raise Failed("the server behind was killed, and is not started again")


def _behind(wire: SelftestConnection, node: Node | None = None) -> list[psutil.Process]:
    """Return the processes that our server started; with Node, only the servers behind it."""
    found = psutil.Process(wire.pid).children(recursive=True)
    return [process for process in found if node is None or Path(process.exe()).samefile(node.program)]
