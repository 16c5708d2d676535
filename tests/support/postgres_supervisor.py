"""Holds a PostgreSQL server for a test's process, and ends it when that ends, however it does.

It says `ready <pid>` once the server lets clients in, and hears one line: `stop` lets the server
end in order, `kill` gives none of its processes a moment. Without a line, when its input ends,
the server is ended and the folder of its data removed.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

READY = "ready to accept connections"
PATIENCE = 25  # seconds to end in order
LAST_LINES = 20


def unprivileged(uid: int | None, gid: int | None) -> dict[str, Any]:
    """For a subprocess: PostgreSQL refuses to be run by root."""
    return {} if uid is None else {"user": uid, "group": gid, "extra_groups": []}


def _end(server: "subprocess.Popen[str]", word: str) -> None:
    if word != "kill" and sys.platform != "win32":
        server.send_signal(signal.SIGINT if word == "stop" else signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE)
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(server.pid)
        first.suspend()  # it would begin new ones
        each = [first, *first.children(recursive=True)]
        for process in each:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(each, PATIENCE)
    server.wait(PATIENCE)


def _started(command: list[str], options: argparse.Namespace) -> "subprocess.Popen[str]":
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd=options.data.parent,
        **unprivileged(options.uid, options.gid),
    )
    assert server.stderr is not None
    said: deque[str] = deque(maxlen=LAST_LINES)
    for line in server.stderr:
        said.append(line)
        if READY in line:
            break
    else:
        sys.stderr.writelines(said)
        sys.exit(1)
    # A pipe that nobody empties would stop the server one day.
    threading.Thread(target=deque, args=(server.stderr, 0), daemon=True).start()
    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    server = _started(options.command, options)
    sys.stdout.write(f"ready {server.pid}\n")
    sys.stdout.flush()
    word = sys.stdin.readline().strip()
    _end(server, word)
    if not word:
        shutil.rmtree(options.data.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
