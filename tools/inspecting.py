"""Everkept servers for tests with other clients, and runs of the MCP Inspector against them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from node_tools import PATIENCE, Failed, Node, install

# Arguments of the Inspector, its exit status, and text that its output must contain.
Inspection = tuple[list[str], int, str]


def server(data_dir: Path, *options: str) -> AbstractContextManager[str]:
    """Start a server on a free port, and yield its address."""
    return started([*serve(data_dir), "--transport", "http", "--port", "0", *options])


@contextmanager
def started(command: Sequence[str]) -> Generator[str, None, None]:
    """Start a server that prints its address, and yield that. It must end without an error."""
    process = subprocess.Popen(
        command, encoding="utf-8", env=environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
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


def serve(data_dir: Path) -> list[str]:
    return [sys.executable, "-m", "everkept", "serve", "--data-dir", str(data_dir)]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("EVERKEPT_")}


def everkept(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an Everkept command. Ignore its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "everkept", *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment(),
        timeout=PATIENCE,
    )


def token(data_dir: Path) -> str:
    made = everkept("token", "--data-dir", str(data_dir))
    if made.returncode != 0:
        raise Failed(f"no token: {made.stderr}")
    return made.stdout.strip()


def calling(tool: str, *arguments: str) -> list[str]:
    given = ["--tool-arg", *arguments] if arguments else []
    return ["tools/call", "--tool-name", tool, *given]


def inspect(node: Node, inspections: Sequence[Inspection], target: Sequence[str], *options: str) -> str:
    """Run the Inspector for each. Its output shows whether a fault is its own or ours."""
    folder = install(node, "inspector")
    launcher = json.loads((folder / "package.json").read_text("utf-8"))["bin"]["mcp-inspector"]
    for arguments, status, text in inspections:
        asked = [*target, *options, "--method", *arguments]
        done = node.run(str(folder / launcher), "--cli", *asked)
        if done.returncode != status or text not in done.stdout:
            raise Failed(
                f"{' '.join(arguments)}: exit status {done.returncode} instead of {status}, "
                f"or no {text!r} in the output:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
    return f"commands: {len(inspections)}"
