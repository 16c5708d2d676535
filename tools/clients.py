"""Runs other people's MCP clients against real servers of ours, and the plugin in Claude Code.

What they need is installed below `.tools` in the checkout, at fixed versions. Node comes
with the type checker of the development environment. An argument picks the runs whose name
contains it. Without a package registry the runs are left out, except in CI, where that fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from claude_code import plugin_from_a_checkout, plugin_from_git
from mcpb import bundled
from node_tools import CHECKOUT, PATIENCE, Failed, Missing, Node, find_node, install, say

EXPECTED_FAILURES = CHECKOUT / "tests" / "clients" / "expected-failures-2026-07-28.yml"


@contextmanager
def server(data_dir: Path, *options: str) -> Iterator[str]:
    """A server on a free port, and its address. It must end well when it is told to."""
    process = subprocess.Popen(
        [*_serve(data_dir), "--transport", "http", "--port", "0", *options],
        encoding="utf-8",
        env=_environment(),
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if "serving http" in line:
                break
        else:
            raise Failed(f"the server did not start: {''.join(lines)}")
        drain = threading.Thread(target=lines.extend, args=(process.stderr,))
        drain.start()
        try:
            yield lines[-1].split("serving ")[1].split()[0]
        finally:
            process.terminate()
            drain.join(PATIENCE)
        if process.wait(PATIENCE) != 0 or any("Traceback" in line for line in lines):
            raise Failed(f"the server ended badly: {''.join(lines)[-2000:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


def _serve(data_dir: Path) -> list[str]:
    return [sys.executable, "-m", "recollect", "serve", "--data-dir", str(data_dir)]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}


Run = Callable[[Node, Path], str]


def conformance(prefix: str, *options: str) -> Run:
    def run(node: Node, scratch: Path) -> str:
        program = str(install(node, prefix) / "dist" / "index.js")
        fixtures = ("--no-token", "--conformance", "--project", "conformance")
        with server(scratch / "data", *fixtures) as url:
            done = node.run(program, "server", "--url", url, *options)
        counts = re.search(r"Total: (\d+ passed, \d+ failed)", done.stdout)
        if done.returncode != 0 or counts is None:
            raise Failed((done.stdout + done.stderr)[-4000:])
        expected = " (expected)" if "--expected-failures" in options else ""
        return counts[1] + expected

    return run


def inspector_on_stdio(node: Node, scratch: Path) -> str:
    return _inspect(node, _serve(scratch / "data"))


def inspector_on_http(node: Node, scratch: Path) -> str:
    data_dir = scratch / "data"
    made = subprocess.run(
        [sys.executable, "-m", "recollect", "token", "--data-dir", str(data_dir)],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=_environment(),
        timeout=PATIENCE,
    )
    with server(data_dir) as url:
        return _inspect(node, [url], "--header", f"Authorization: Bearer {made.stdout.strip()}")


ENTITIES = json.dumps(
    [{"name": "Ada", "entity_type": "person", "observations": ["wrote the first program"]}]
)
GRAPH = "memory://projects/clients/knowledge-graph"


def _call(tool: str, *arguments: str) -> list[str]:
    given = ["--tool-arg", *arguments] if arguments else []
    return ["tools/call", "--tool-name", tool, *given]


# What the Inspector is asked to do, its exit status, and what its output must contain.
INSPECTIONS: list[tuple[list[str], int, str]] = [
    (["tools/list", "--strict"], 0, '"create_entities"'),
    (_call("create_project", "name=clients"), 0, "clients"),
    (_call("create_entities", f"entities={ENTITIES}", "project=clients"), 0, "Ada"),
    (_call("search_nodes", "query=first program", "project=clients"), 0, "Ada"),
    (_call("list_projects"), 0, "clients"),
    (_call("switch_project", "name=none"), 5, "not_found"),
    (["resources/list"], 0, GRAPH),
    (["resources/templates/list"], 0, "uriTemplate"),
    (["resources/read", "--uri", GRAPH], 0, "Ada"),
]


def _inspect(node: Node, target: list[str], *options: str) -> str:
    folder = install(node, "inspector")
    launcher = json.loads((folder / "package.json").read_text("utf-8"))["bin"]["mcp-inspector"]
    for arguments, status, text in INSPECTIONS:
        asked = [*target, *options, "--method", *arguments]
        done = node.run(str(folder / launcher), "--cli", *asked)
        if done.returncode != status or text not in done.stdout:
            raise Failed(
                f"{' '.join(arguments)}: exit status {done.returncode} instead of {status}, "
                f"or no {text!r} in the output:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
    return f"{len(INSPECTIONS)} commands"


RUNS: dict[str, Run] = {
    "conformance 0.1.16, active": conformance("conformance-0.1"),
    "conformance 0.1.16, all": conformance("conformance-0.1", "--suite", "all"),
    "conformance 0.2.0, 2025-11-25": conformance("conformance-0.2", "--requirements", "2025-11-25"),
    "conformance 0.2.0, 2026-07-28": conformance(
        "conformance-0.2",
        *("--requirements", "2026-07-28", "--expected-failures", str(EXPECTED_FAILURES)),
    ),
    "inspector 2.12.0, stdio": inspector_on_stdio,
    "inspector 2.12.0, http": inspector_on_http,
    "claude code 2.1.325, plugin": plugin_from_git,
    "claude code 2.1.325, checkout": plugin_from_a_checkout,
    "mcpb 2.1.2": bundled,
}


def main(wanted: list[str]) -> int:
    chosen = {
        name: run for name, run in RUNS.items() if not wanted or any(w in name for w in wanted)
    }
    with tempfile.TemporaryDirectory(prefix="recollect-clients-") as scratch:
        try:
            node = find_node(Path(scratch))
            rows = [
                _outcome(name, run, node, Path(scratch, str(number)))
                for number, (name, run) in enumerate(chosen.items())
            ]
        except Missing as error:
            say(f"clients: not run: {error}.\n")
            return 1 if os.environ.get("CI") == "true" else 0
    for is_passed, line in rows:
        say(f"{'passed' if is_passed else 'FAILED'}  {line}\n")
    failed = sum(not is_passed for is_passed, _ in rows)
    say(f"{len(rows) - failed} passed, {failed} failed\n")
    return 1 if failed or not rows else 0


def _outcome(name: str, run: Run, node: Node, scratch: Path) -> tuple[bool, str]:
    scratch.mkdir()
    began = time.monotonic()
    try:
        told, is_passed = run(node, scratch), True
    except Failed as error:
        say(f"{name}: {error}\n")
        told, is_passed = _last_line(str(error))[:100], False
    return is_passed, f"{name:32} {time.monotonic() - began:5.1f} s  {told}"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
