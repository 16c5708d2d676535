"""A disk without any space: everything can be read, a write says what to do, and nothing acknowledged is lost."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120  # seconds until the commands count as blocked
IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$1" && shift && exec "$@"'

# Runs commands in one process, and prints for each its exit status and what it printed.
ACT = r"""
import contextlib, io, json, os, subprocess, sys
from pathlib import Path

way, place, beyond = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
os.environ |= {"EVERKEPT_DATA_DIR": str(place / "data"), "EVERKEPT_CONFIG": "none", "EVERKEPT_EMBEDDING_MODEL": "none"}
os.chdir(place)
from everkept.cli.main import main

told = {}

def run(*arguments):
    out, status = io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main([*arguments])
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue()

def note(name, *arguments):
    told[name] = run(*arguments)

def fill():
    if way == "limit":
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return
    with contextlib.suppress(OSError), open(place / "filler", "wb", buffering=0) as filler:
        while filler.write(bytes(512)):
            pass

def free():
    if way == "limit":
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    else:
        (place / "filler").unlink()

run("create-project", "shop")
run("switch-project", "shop")
run("remember", "Ada prefers tea", "--project", "shop")
run("create-entities", '{"entities": [{"name": "Ada", "entity_type": "person"}]}', "--project", "shop")
if not os.fork():  # a server that is killed leaves its log
    import signal
    from everkept.app import app
    async def die(self): signal.raise_signal(signal.SIGKILL)
    app.App.close = die
    run("remember", "Bob prefers coffee", "--project", "shop")
os.wait()
told["logs"] = sum(path.stat().st_size > 0 for path in place.rglob("*.db-wal"))

fill()
note("status", "status", "--json")
note("list", "list", "--project", "shop")
note("recall", "recall", "who prefers coffee", "--project", "shop")
note("context", "context", "--project", "shop")
note("log", "log", "--json")
note("projects", "list-projects")
note("nodes", "search-nodes", "Ada", "--project", "shop")
note("doctor", "doctor", "--json")
note("remember", "remember", "Cora prefers cake. " * 4_000, "--project", "shop")
note("create", "create-project", "another")
if way == "tmpfs":
    note("export", "export", str(beyond / "export"))
    note("backup", "backup", str(beyond / "backup.zip"))
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    wish = {"name": "recall_memories", "arguments": {"query": "coffee", "project": "shop"}}
    sent = [("initialize", hello), ("tools/call", wish)]
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": m, "params": p}) + "\n" for n, (m, p) in enumerate(sent)]
    command = [sys.executable, "-m", "everkept", "serve"]
    served = subprocess.run(command, input="".join(lines), text=True, capture_output=True)
    told["serve"] = served.returncode, served.stdout
free()
note("again", "remember", "Cora prefers cake", "--project", "shop")
note("list again", "list", "--project", "shop")
print(json.dumps(told))
"""


@cache
def can_mount() -> bool:
    probe = (*IN_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return shutil.which(IN_NAMESPACE[0]) is not None and subprocess.run(probe, capture_output=True).returncode == 0


def act(way: str, folder: Path) -> dict[str, Any]:
    place, beyond = folder / "disk", folder / "beyond"
    place.mkdir()
    beyond.mkdir()
    command = [sys.executable, "-c", ACT, way, str(place), str(beyond)]
    if way == "tmpfs":
        command = [*IN_NAMESPACE, "sh", "-c", MOUNT, "sh", str(place), *command]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit or a mount")
@pytest.mark.parametrize("way", ["tmpfs", "limit"])
def test_a_full_disk_can_be_read_and_loses_nothing(way: str, tmp_path: Path) -> None:
    if way == "tmpfs" and not can_mount():
        pytest.skip("this account may not mount")
    told = act(way, tmp_path)
    assert told["logs"], "the killed command left its log, as a killed server does"
    refused = {name: told.pop(name) for name in ("remember", "create")}
    doctor = told.pop("doctor")
    assert doctor[0] == (way == "tmpfs"), "the doctor reports a disk without space"
    assert "memory" not in doctor[1] or "is damaged" not in doctor[1]
    assert {name: outcome for name, outcome in told.items() if name != "logs" and outcome[0]} == {}
    for name in ("list", "recall", "context", "log", "list again"):
        assert "Bob prefers coffee" in told[name][1], name
    assert "Ada" in told["nodes"][1]
    for name, (status, said) in refused.items():
        assert status == 1, name
        assert "no disk space is left" in said, name
        assert "Nothing was stored." in said, name
        assert "Free some disk space" in said or "Raise the quota or file size limit" in said, name
        assert "Traceback" not in said, name
    assert "Cora" in told["list again"][1]
    if way == "tmpfs":
        assert "Bob prefers coffee" in told["serve"][1]
