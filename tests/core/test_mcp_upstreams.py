"""What a server is called in errors and in the log."""

import pytest

from everkept.core.mcp import ONLY, Endpoint, Launch, Reach

KEY = "sk-ant-api03-" + "Zq8Lw2Xc9Vb4Nm1Kj7Hg5Fd3Sa6Po0Iu"


@pytest.mark.parametrize(
    ("way", "label"),
    [
        (Launch("npx", ("-y", "@x/notes@1.2", "/folder")), "npx @x/notes@1.2"),
        (Launch("/usr/bin/python3", ("-m", "notes.server", "--key", KEY)), "python3 notes.server"),
        (Launch("python3", ("/x/flex.py",)), "python3 flex.py"),
        (Launch("notes", ("--token", "hush", "file")), "notes"),
        (Launch("notes", ("postgres://me:hush@host/db",)), "notes"),
        (Launch("notes", (KEY,)), "notes"),
        (Launch("notes"), "notes"),
        (Launch("npx -y notes --token hush/hush"), "npx"),
        (Endpoint("https://me:hush@example.com:8443/mcp?key=hush"), "example.com:8443"),
        (Endpoint("https://[example.com/mcp"), ONLY),
        (Endpoint("example.com"), ONLY),
    ],
)
def test_a_server_without_a_name_is_called_by_what_it_is(
    way: Launch | Endpoint, label: str
) -> None:
    assert Reach(ONLY, way).label == label
    assert Reach("web", way).label == "web"
