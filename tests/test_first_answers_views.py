"""Saved first answers, for clients that draw views in a chat and for others."""

from pathlib import Path

from server_processes import StdioServer
from view_clients import DRAWS, ViewClient, run_server


def start(folder: Path, *, draws: bool) -> tuple[object, object]:
    """The first answers of a new server."""
    with run_server("stdio", folder) as server:
        assert isinstance(server, StdioServer)
        client = ViewClient(server, "handshake", DRAWS if draws else {})
        listed = client.ask("tools/list")
        server.ask(9, "ping")
        return client.hello, listed


def test_saved_answers_differ_by_what_the_client_can_draw(tmp_path: Path) -> None:
    for first in (True, False):
        folder = tmp_path / str(first)
        folder.mkdir()
        real = {first: start(folder, draws=first)}
        assert list((folder / "cache" / "everkept").glob("first-answers-*"))
        saved = {draws: start(folder, draws=draws) for draws in (True, False)}
        assert saved[first] == real[first]
        assert ["_meta" in str(saved[draws][1]) for draws in (True, False)] == [True, False]
        assert ["extensions" in str(saved[draws][0]) for draws in (True, False)] == [True, False]
