"""Run other MCP clients against real Everkept servers, the plugin in Claude Code, and hooks in other assistants.

Their packages are installed into `.tools` at fixed versions. Node comes with the type checker. An argument selects the
runs whose name contains it. Without a package registry, the runs are skipped; in CI that is an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from claude_code import plugin_during_setup, plugin_from_a_checkout, plugin_from_git
from gateway_clients import (
    inspector_through_the_gateway_on_http,
    inspector_through_the_gateway_on_stdio,
    server_memory_behind_the_gateway,
)
from inspecting import Inspection, calling, inspect, serve, server, started, token
from mcpb import bundled
from node_tools import CHECKOUT, Failed, Missing, Node, find_node, install, say
from other_assistants import codex_with_hooks, copilot_with_hooks, gemini_with_hooks
from single_sign_on import sign_in_at_a_provider

FIXTURES = CHECKOUT / "tests" / "support" / "conformance_server.py"
EXPECTED_FAILURES = CHECKOUT / "tests" / "clients" / "expected-failures-2026-07-28.yml"
SIDE_BY_SIDE = 2  # runs; each waits for a registry, a client or a server most of the time
# Assistants, which end hooks that take too long, and their packages.
ALONE = {"claude code": "claude-code", "codex": "codex", "copilot": "copilot", "gemini": "gemini"}


Run = Callable[[Node, Path], str]


def conformance(prefix: str, *options: str) -> Run:
    def run(node: Node, scratch: Path) -> str:
        program = str(install(node, prefix) / "dist" / "index.js")
        with started([sys.executable, str(FIXTURES), str(scratch / "data")]) as url:
            done = node.run(program, "server", "--url", url, *options)
        counts = re.search(r"Total: (\d+ passed, \d+ failed)", done.stdout)
        if done.returncode != 0 or counts is None:
            raise Failed((done.stdout + done.stderr)[-4000:])
        expected = " (expected)" if "--expected-failures" in options else ""
        return counts[1] + expected

    return run


def inspector_on_stdio(node: Node, scratch: Path) -> str:
    return inspect(node, INSPECTIONS, serve(scratch / "data"))


def inspector_on_http(node: Node, scratch: Path) -> str:
    data_dir = scratch / "data"
    bearer = f"Authorization: Bearer {token(data_dir)}"
    with server(data_dir) as url:
        return inspect(node, INSPECTIONS, [url], "--header", bearer)


def views_by_the_official_schema(node: Node, scratch: Path) -> str:
    """Check each message of a view in Chromium, and what the server says of views, by the schema of MCP Apps."""
    schema = install(node, "ext-apps") / "dist" / "src" / "generated" / "schema.json"
    done = subprocess.run(
        [CHECKOUT / "tools" / "browser", "-k", "the_specification_says"],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=os.environ | {"EXT_APPS_SCHEMA": str(schema)},
    )
    if done.returncode != 0:
        raise Failed((done.stdout + done.stderr)[-4000:])
    return "1 passed" if "1 passed" in done.stdout else "not run, because there is no Chromium here"


ENTITIES = json.dumps([{"name": "Ada", "entity_type": "person", "observations": ["wrote the first program"]}])
GRAPH = "memory://projects/clients/knowledge-graph"


INSPECTIONS: list[Inspection] = [
    (["tools/list", "--strict"], 0, '"create_entities"'),
    (calling("create_project", "name=clients"), 0, "clients"),
    (calling("create_entities", f"entities={ENTITIES}", "project=clients"), 0, "Ada"),
    (calling("search_nodes", "query=first program", "project=clients"), 0, "Ada"),
    (calling("list_projects"), 0, "clients"),
    (calling("switch_project", "name=none"), 5, "not_found"),
    (["resources/list"], 0, GRAPH),
    (["resources/templates/list"], 0, "uriTemplate"),
    (["resources/read", "--uri", GRAPH], 0, "Ada"),
]


RUNS: dict[str, Run] = {
    "conformance 0.1.16, active": conformance("conformance-0.1"),
    "conformance 0.1.16, all": conformance("conformance-0.1", "--suite", "all"),
    "conformance 0.2.0, 2025-11-25": conformance("conformance-0.2", "--requirements", "2025-11-25"),
    "conformance 0.2.0, 2026-07-28": conformance(
        "conformance-0.2", *("--requirements", "2026-07-28", "--expected-failures", str(EXPECTED_FAILURES))
    ),
    "inspector 2.12.0, stdio": inspector_on_stdio,
    "inspector 2.12.0, http": inspector_on_http,
    "inspector, gateway, stdio": inspector_through_the_gateway_on_stdio,
    "inspector, gateway, http": inspector_through_the_gateway_on_http,
    "server-memory behind the gateway": server_memory_behind_the_gateway,
    "claude code 2.1.325, plugin": plugin_from_git,
    "claude code 2.1.325, checkout": plugin_from_a_checkout,
    "claude code 2.1.325, setup": plugin_during_setup,
    "codex 0.166.0, hooks": codex_with_hooks,
    "copilot cli 1.0.102, hooks": copilot_with_hooks,
    "gemini cli 0.61.0, hooks": gemini_with_hooks,
    "mcpb 2.1.2": bundled,
    "ext-apps 2.0.4, schema": views_by_the_official_schema,
    "oidc-provider 9.13.3, sdk": sign_in_at_a_provider,
}


def main(wanted: list[str]) -> int:
    chosen = [name for name in RUNS if not wanted or any(w in name for w in wanted)]
    with tempfile.TemporaryDirectory(prefix="everkept-clients-") as scratch:
        try:
            node = find_node(Path(scratch))
            alone = [name for name in chosen if name.startswith(tuple(ALONE))]
            packages = [package for name, package in ALONE.items() if any(each.startswith(name) for each in alone)]
            run = partial(_outcome, node, Path(scratch))
            # Processes, because a run may change the environment. Forked, they share the locks of installations.
            with ProcessPoolExecutor(SIDE_BY_SIDE, get_context("fork")) as processes:
                installed = processes.map(partial(install, node), packages)
                rows = [*processes.map(run, (name for name in chosen if name not in alone))]
                list(installed)
            rows += map(run, alone)
        except Missing as error:
            say(f"clients: not run: {error}.\n")
            return 1 if os.environ.get("CI") == "true" else 0
    for is_passed, line in rows:
        say(f"{'passed' if is_passed else 'FAILED'}  {line}\n")
    failed = sum(not is_passed for is_passed, _ in rows)
    say(f"{len(rows) - failed} passed, {failed} failed\n")
    return 1 if failed or not rows else 0


def _outcome(node: Node, place: Path, name: str) -> tuple[bool, str]:
    scratch = place / str(list(RUNS).index(name))
    scratch.mkdir()
    began = time.monotonic()
    try:
        told, is_passed = RUNS[name](node, scratch), True
    except Failed as error:
        say(f"{name}: {error}\n")
        told, is_passed = _last_line(str(error))[:100], False
    return is_passed, f"{name:32} {time.monotonic() - began:5.1f} s  {told}"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
