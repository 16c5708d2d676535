import asyncio
import os
from pathlib import Path

import pytest

from certificates import certificate
from everkept.app.engines import find_standby
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import SetNote
from everkept.settings import read_settings
from server_processes import READY, StdioServer, http_server, run, stdio_server

NOBODY = "ws://127.0.0.1:1"  # where nothing listens


@pytest.fixture
def unsafe(tmp_path: Path) -> dict[str, str]:
    """Variables of a server whose settings work, and are not what somebody meant."""
    ca = tmp_path / "ca.pem"
    ca.write_text("", encoding="utf-8")
    return {"EVERKEPT_DATABASE_URL": NOBODY, "EVERKEPT_DATABASE_CA": str(ca)}


def test_what_is_not_safe_is_said_once_at_the_start_and_not_on_the_wire(tmp_path: Path, unsafe: dict[str, str]) -> None:
    with stdio_server(tmp_path / "data", **unsafe) as server:
        assert server.ask(1, "ping")["result"] == {}
        assert _asked(server) == 2
        assert server.close_input() == 0
        assert server.rest() == []
    assert server.finish().count("database_ca is not used") == 1


def test_a_server_over_http_says_it_too(tmp_path: Path, unsafe: dict[str, str]) -> None:
    with http_server(tmp_path / "data", "--no-token", **unsafe) as server:
        pass
    assert "".join(server.said).count("database_ca is not used") == 1


def test_safe_settings_leave_nothing_to_say(tmp_path: Path) -> None:
    with stdio_server(tmp_path / "data", "--database-url", NOBODY) as server:
        assert _asked(server) == 2
        assert server.close_input() == 0
    assert server.finish() == READY


def _asked(server: StdioServer) -> int:
    """The number of a second question, once it is answered."""
    return server.ask(2, "tools/list")["id"]


def test_what_waits_for_a_server_of_before_is_said_at_the_start(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path / "data", "config": "none", "database_url": NOBODY}, {})
    standby = find_standby(settings)
    assert standby is not None

    async def leave() -> None:
        journal = Journal(standby.journal)
        await journal.append(SetNote("key", ""))
        await journal.close()

    asyncio.run(leave())
    with stdio_server(tmp_path / "data") as server:
        assert _asked(server) == 2
        assert server.close_input() == 0
    assert server.finish().count("are still on this machine: 1 pending") == 1


def test_memories_of_the_plugin_are_announced_once_with_the_command_that_imports_them(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "surrealdb-memory" / "data"
    (folder / "clog").mkdir(parents=True)
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    said: list[str] = []
    for _ in range(2):
        with stdio_server(tmp_path / "data", **home) as server:
            assert _asked(server) == 2
            assert server.close_input() == 0
        said.append(server.finish())
    assert [text.count("`everkept import surrealdb-memory ") for text in said] == [1, 0]
    assert str(folder) in said[0]
    assert [each.name for each in folder.iterdir()] == ["clog"]


def test_a_server_over_http_announces_them_too(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "surrealdb-memory" / "data" / "clog").mkdir(parents=True)
    with http_server(tmp_path / "data", "--no-token", HOME=str(tmp_path), USERPROFILE=str(tmp_path)) as server:
        pass
    assert "".join(server.said).count("`everkept import surrealdb-memory ") == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--certificate", "none.pem"), "none.pem, which is not a file"),
        (("--certificate-key", "key.pem"), "--certificate-key needs --certificate"),
        (("--rate-limit", "-1"), "rate_limit is -1"),
    ],
)
def test_a_mistake_about_http_is_told_before_anything_starts(
    tmp_path: Path, options: tuple[str, str], told: str
) -> None:
    data = tmp_path / "data"
    refused = run("serve", "--transport", "http", "--no-token", "--data-dir", data, *options)
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert told in refused.stderr
    assert not data.exists()


def test_a_proxy_that_is_no_address_is_told_before_anything_starts(tmp_path: Path) -> None:
    config, data = tmp_path / "config.md", tmp_path / "data"
    config.write_text('---\ntrusted_proxies: "10.0.0.5, proxy.example"\n---\n', encoding="utf-8")
    asked = ("--transport", "http", "--no-token", "--data-dir", data, "--config", config)
    refused = run("serve", *asked)
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert "trusted_proxies names 'proxy.example'" in refused.stderr
    assert not data.exists()


def test_a_key_that_others_may_read_is_told_of(tmp_path: Path) -> None:
    path = certificate(tmp_path)
    path.chmod(0o644)
    with http_server(tmp_path / "data", "--no-token", "--certificate", path) as server:
        assert server.url.startswith("https://127.0.0.1:")
    assert any(f"chmod 600 {path}" in line for line in server.said) == (os.name == "posix")


def test_without_the_database_and_a_copy_of_it_no_token_is_said_to_be_missing(tmp_path: Path) -> None:
    place = ("--data-dir", tmp_path / "data", "--database-url", "ws://127.0.0.1:1")
    refused = run("serve", "--transport", "http", "--port", 0, *place)
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert "tokens cannot be checked" in refused.stderr
    assert "ws://127.0.0.1:1" in refused.stderr
    assert "has never been reached from this folder" in refused.stderr
    assert "none yet" not in refused.stderr
