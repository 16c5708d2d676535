"""What a server is called in errors and in the log."""

import pytest

from everkept.core.mcp import SINGLE_UPSTREAM, UpstreamEndpoint, UpstreamProgram, UpstreamSettings

KEY = "sk-ant-api03-" + "Zq8Lw2Xc9Vb4Nm1Kj7Hg5Fd3Sa6Po0Iu"


@pytest.mark.parametrize(
    ("way", "label"),
    [
        (UpstreamProgram("npx", ("-y", "@x/notes@1.2", "/folder")), "npx @x/notes@1.2"),
        (UpstreamProgram("/usr/bin/python3", ("-m", "notes.server", "--key", KEY)), "python3 notes.server"),
        (UpstreamProgram("python3", ("/x/flex.py",)), "python3 flex.py"),
        (UpstreamProgram("notes", ("--token", "hush", "file")), "notes"),
        (UpstreamProgram("notes", ("postgres://me:hush@host/db",)), "notes"),
        (UpstreamProgram("notes", (KEY,)), "notes"),
        (UpstreamProgram("notes"), "notes"),
        (UpstreamProgram("npx -y notes --token hush/hush"), "npx"),
        (UpstreamEndpoint("https://me:hush@example.com:8443/mcp?key=hush"), "example.com:8443"),
        (UpstreamEndpoint("https://[example.com/mcp"), SINGLE_UPSTREAM),
        (UpstreamEndpoint("example.com"), SINGLE_UPSTREAM),
    ],
)
def test_a_server_without_a_name_is_called_by_what_it_is(way: UpstreamProgram | UpstreamEndpoint, label: str) -> None:
    assert UpstreamSettings(SINGLE_UPSTREAM, way).label == label
    assert UpstreamSettings("web", way).label == "web"
