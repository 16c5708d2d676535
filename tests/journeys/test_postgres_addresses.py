"""PostgreSQL as its users write its address: with a login, through a socket, and without pgvector."""

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postgres_server import USER, Server, served
from server_processes import HANG, command, environment

SECRET = "hunter2-of-the-database"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sockets are files of POSIX")


def run(data: Path, address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, "--data-dir", data),
        capture_output=True,
        check=False,
        encoding="utf-8",
        env={**environment(), "EVERKEPT_DATABASE_URL": address},
        timeout=HANG,
    )


@pytest.fixture
def sockets() -> Path:
    """A folder that the server's own account can write to."""
    folder = Path(tempfile.mkdtemp(prefix="everkept-socket-"))
    folder.chmod(0o777)
    return folder


@pytest.fixture
async def locked(sockets: Path) -> AsyncIterator[Server]:
    async with served(password=SECRET, settings=[f"unix_socket_directories={sockets}"]) as server:
        yield server


@pytest.mark.parametrize("form", ["login", pytest.param("query", marks=pytest.mark.thorough), "socket"])
async def test_an_address_with_a_password_works_and_stays_out_of_all_files(
    locked: Server, sockets: Path, tmp_path: Path, form: str
) -> None:
    host = f"127.0.0.1:{locked.port}"
    address = {
        "login": f"postgresql://{USER}:{SECRET}@{host}/postgres?sslmode=disable",
        "query": f"postgresql://{host}/postgres?sslmode=disable&user={USER}&password={SECRET}",
        "socket": f"postgresql:///postgres?host={sockets}&port={locked.port}&user={USER}&password={SECRET}",
    }[form]
    data = tmp_path / "data"
    stored = run(data, address, "remember", "The teapot leaks", "--project", "shop")
    assert stored.returncode == 0, stored.stderr
    found = run(data, address, "list", "--project", "shop", "--json")
    assert [each["content"] for each in json.loads(found.stdout)["memories"]] == ["The teapot leaks"]
    shown = [run(data, address, *words) for words in (["status"], ["config"], ["doctor"])]
    for each in [stored, found, *shown]:
        assert SECRET not in each.stdout + each.stderr
    files = [path for path in data.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


async def test_a_server_without_pgvector_says_which_package_is_missing(tmp_path: Path) -> None:
    async with served(settings=["extension_control_path=/nowhere"]) as server:
        for words in (["doctor"], ["remember", "The teapot leaks"]):
            told = run(tmp_path / "data", server.url, *words)
            assert told.returncode != 0
            said = " ".join((told.stdout + told.stderr).split())
            assert "does not have pgvector" in said
            assert "postgresql-18-pgvector" in said


async def test_status_explains_a_server_that_does_not_answer(tmp_path: Path) -> None:
    async with served() as server:
        address = server.url
        assert run(tmp_path / "data", address, "remember", "The teapot leaks").returncode == 0
    told = run(tmp_path / "data", address, "status")
    assert told.returncode == 0, told.stderr
    said = " ".join(told.stdout.split())
    assert "1 memory" in said
    assert "Connection refused" in said
    assert "unreachable" not in told.stderr  # the log would repeat it
