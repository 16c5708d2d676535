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
way = given["way"]
asking = socket.socket(socket.AF_INET6 if way == "ipv6" else socket.AF_INET)
asking.settimeout(60)
if way == "other address":
    asking.bind(("127.0.0.2", 0))
if way == "used port":  # a closed connection from the same port is shown as root's
    own, listening, earlier = asking, socket.create_server(("127.0.0.1", 0)), socket.socket()
    for each in earlier, own:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    earlier.bind(("127.0.0.1", 0))
    own.bind(earlier.getsockname())
    earlier.connect(listening.getsockname())
    earlier.close()
    listening.accept()[0].close()
try:
    asking.connect(("::ffff:" + address if way == "ipv6" else address, int(port)))
except OSError:
    sys.exit("no way")
asking.sendall("\\r\\n".join(lines).encode())
print(asking.recv(4096).split()[1].decode())
"""
WAYS = ["direct", "other address", "ipv6", *["used port"] * 3]  # the order of connections in the table is random


def _redeem(host: str, code: str, user: int | None, way: str = "direct") -> str:
    asked = subprocess.run(
        [sys.executable, "-c", REDEEM],
        input=json.dumps({"host": host, "code": code, "user": user, "way": way}),
        capture_output=True,
        encoding="utf-8",
        timeout=HANG,
    )
    assert asked.returncode == 0 or asked.stderr == "no way\n", asked.stderr
    return asked.stdout.strip()


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
        for way in WAYS:
            assert _redeem(host, code, STRANGER, way) in ("403", ""), way
        assert _redeem(host, code, STRANGER) == "403"
        assert _redeem(host, code, None) == "200"  # the stranger has not used it up
    finally:
        started.kill()
        started.communicate()
