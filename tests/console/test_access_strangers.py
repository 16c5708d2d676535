"""Another user of this machine, who has read the code of the console among the arguments of the browser."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server_processes import HANG, command, environment

STRANGER = 54_321  # an id that no user has

# Redeems a code as a stranger, and prints the status.
REDEEM = """
import encodings.idna, json, os, socket, sys  # all of them before the user changes, who may not read our modules
given = json.load(sys.stdin)
body = json.dumps({"code": given["code"]})
lines = "POST /console/api/session HTTP/1.1", "Host: " + given["host"], "Accept: */*", "Connection: close"
lines += "Content-Type: application/json", "Content-Length: " + str(len(body)), "", body
if given["user"] is not None:
    os.setgroups([])
    os.setgid(given["user"])
    os.setuid(given["user"])
address, _, port = given["host"].partition(":")
with socket.create_connection((address, int(port)), 60) as asking:
    asking.sendall("\\r\\n".join(lines).encode())
    print(asking.recv(4096).split()[1].decode())
"""


def _redeem(host: str, code: str, user: int | None) -> str:
    return subprocess.run(
        [sys.executable, "-c", REDEEM],
        input=json.dumps({"host": host, "code": code, "user": user}),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=HANG,
    ).stdout.strip()


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user, and only Linux shows codes"
)
def test_a_code_is_of_no_use_to_another_user(tmp_path: Path) -> None:
    started = subprocess.Popen(
        command("console", "--no-open", "--data-dir", tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        env=environment(),
    )
    try:
        assert started.stdout is not None
        found = re.search(r"http://(127[^/]+)/console#code=(\S+)", started.stdout.readline())
        assert found
        host, code = found[1], found[2]
        assert _redeem(host, code, STRANGER) == "403"
        assert _redeem(host, code, None) == "200"  # the stranger has not used it up
    finally:
        started.kill()
        started.communicate()
