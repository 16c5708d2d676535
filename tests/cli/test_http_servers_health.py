import re
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from certificates import certificate
from server_processes import http_server

Run = Callable[..., Any]

ROOT = Path(__file__).parent.parent.parent


def port_of(url: str) -> str:
    return str(urlsplit(url).port)


def test_a_server_that_answers_is_well(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(tmp_path / "served", "--no-token") as server:
        monkeypatch.setenv("EVERKEPT_TRANSPORT", "http")
        monkeypatch.setenv("EVERKEPT_PORT", port_of(server.url))
        assert (everkept("health").status, everkept("health").out) == (0, "ok\n")
        monkeypatch.setenv("EVERKEPT_HOST", "0.0.0.0")
        assert everkept("health", "--ready", "--json").json == {"status": "ready"}
    gone = everkept("health")
    assert gone.status == 1
    assert "No server answers at http://127.0.0.1:" in gone.err


def test_one_with_a_certificate_is_asked_with_it_whatever_its_name(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    with http_server(tmp_path / "served", "--no-token", "--certificate", pem) as server:
        plain = everkept("health", "--port", port_of(server.url))
        assert plain.status == 1
        monkeypatch.setenv("EVERKEPT_CERTIFICATE", str(pem))
        assert everkept("health", "--port", port_of(server.url)).out == "ok\n"


def test_of_a_server_over_stdio_there_is_nothing_to_ask(everkept: Run, tmp_path: Path) -> None:
    assert (everkept("health").status, everkept("health").out) == (0, "stdio\n")
    assert not (tmp_path / "data").exists()


@contextmanager
def answering(answers: dict[str, tuple[int, bytes]]) -> Generator[str, None, None]:
    """A server of somebody else's, which gives these answers; the port of it."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_cannot_answer_calls_lives_and_is_not_ready(everkept: Run) -> None:
    answers = {"/health": (200, b'{"status": "ok"}'), "/ready": (503, b'{"status": "unavailable"}')}
    with answering(answers) as port:
        assert everkept("health", "--port", port).out == "ok\n"
        refused = everkept("health", "--port", port, "--ready")
    assert (refused.status, refused.out) == (1, "")
    assert "/ready answers with 503" in refused.err


@pytest.mark.parametrize("status", [204, 301, 404, 500])
def test_any_other_status_is_not_well(everkept: Run, status: int) -> None:
    with answering({"/health": (status, b"")}) as port:
        refused = everkept("health", "--port", port)
    assert refused.status == 1
    assert f"http://127.0.0.1:{port} is unhealthy: /health answers with {status}" in refused.err


@pytest.mark.parametrize("body", [b"", b"OK", b"[]", b"{}", b'{"status": "UP"}', b'{"status": ["ok"]}', b"[" * 1_000])
def test_somebody_elses_server_is_none_of_ours(everkept: Run, body: bytes) -> None:
    with answering({"/health": (200, body)}) as port:
        refused = everkept("health", "--port", port)
    assert (refused.status, refused.out) == (1, "")
    assert f"The server at http://127.0.0.1:{port} is not an Everkept server." in refused.err


@pytest.mark.parametrize(
    "host",
    ["a..b", "a\nb", "x" * 300, "\u00fc" * 100],
    ids=["with a gap", "of two lines", "too long", "too long and foreign"],
)
def test_what_is_no_address_answers_nothing(everkept: Run, host: str) -> None:
    refused = everkept("health", "--host", host)
    assert refused.status == 1
    assert "No server answers at http://" in refused.err
    assert len(refused.err.splitlines()) == 1


def test_a_container_of_which_the_guide_tells_is_asked_by_its_health_check(
    everkept: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health check has the variables of the container and none of the server's flags."""
    guide = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^docker run .*-p .*$", guide, re.MULTILINE)
    words = shlex.split(command)
    for name, value in pairwise(words):
        if name == "-e":
            monkeypatch.setenv(*value.split("=", 1))
    with answering({}) as port:
        pass  # nobody listens there any more
    monkeypatch.setenv("EVERKEPT_PORT", port)
    assert everkept("health").status == 1
