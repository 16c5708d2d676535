from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from certifying import certificate
from serving import http_server

Run = Callable[..., Any]


def port_of(url: str) -> str:
    return str(urlsplit(url).port)


def test_a_server_that_answers_is_well(
    recollect: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server(tmp_path / "served", "--no-token") as server:
        monkeypatch.setenv("RECOLLECT_TRANSPORT", "http")
        monkeypatch.setenv("RECOLLECT_PORT", port_of(server.url))
        assert (recollect("health").status, recollect("health").out) == (0, "ok\n")
        monkeypatch.setenv("RECOLLECT_HOST", "0.0.0.0")
        assert recollect("health", "--ready", "--json").json == {"status": "ready"}
    gone = recollect("health")
    assert gone.status == 1
    assert "No server answers at http://127.0.0.1:" in gone.err


def test_one_with_a_certificate_is_asked_with_it_whatever_its_name(
    recollect: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    with http_server(tmp_path / "served", "--no-token", "--certificate", pem) as server:
        plain = recollect("health", "--port", port_of(server.url))
        assert plain.status == 1
        monkeypatch.setenv("RECOLLECT_CERTIFICATE", str(pem))
        assert recollect("health", "--port", port_of(server.url)).out == "ok\n"


def test_of_a_server_over_stdio_there_is_nothing_to_ask(recollect: Run, tmp_path: Path) -> None:
    assert (recollect("health").status, recollect("health").out) == (0, "stdio\n")
    assert not (tmp_path / "data").exists()
