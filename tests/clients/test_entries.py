from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import CLIENTS, ClientEnvironment, UnexpectedShape, get_client
from everkept.clients.entries import NameTaken, ServerConfigPart
from everkept.clients.own_command import get_command_words

SAMPLES = Path(__file__).parent / "samples"
WORDS = ("/opt/everkept", "serve", "--project", "auto")


def part(name: str, words: tuple[str, ...] = WORDS, *, force: bool = False) -> ServerConfigPart:
    client = get_client(name, ClientEnvironment({}, Path("/home/ada"), "linux", Path("/shop")))
    return ServerConfigPart(client.user_file, client, words, force)


def sample(name: str) -> str:
    ending = "toml" if name == "codex" else "json"
    return (SAMPLES / f"{name}.{ending}").read_bytes().decode("utf-8")


def entry(of: ServerConfigPart, text: str) -> dict[str, Any]:
    value: Any = of.editor.parse_text(text)
    for key in of.path:
        value = value[key]
    return value


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_gets_its_entry_and_keeps_everything_else(name: str) -> None:
    ours, before = part(name), sample(name)
    after = ours.insert(before)
    assert get_command_words(entry(ours, after)) == WORDS
    assert ours.exclude_ours(ours.editor.parse_text(after)) == ours.editor.parse_text(before)
    assert ours.insert(after) == after
    assert ours.remove(after) == before


@pytest.mark.parametrize("name", CLIENTS)
def test_line_ends_of_windows_and_files_without_a_last_one_stay(name: str) -> None:
    ours = part(name)
    for before in (sample(name).replace("\r", "").replace("\n", "\r\n"), sample(name).rstrip()):
        after = ours.insert(before)
        assert after.count("\n") == after.count("\r\n") or "\r" not in before
        assert ours.remove(after) == before


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_is_begun_where_there_is_none(name: str) -> None:
    ours = part(name)
    assert ours.is_present(ours.editor.parse_text(ours.content))
    assert ours.insert("") == ours.content


def test_clients_that_name_the_transport_are_told_it() -> None:
    for name in ("claude-code", "vscode"):
        assert part(name).value["type"] == "stdio"
    assert part("copilot").value == {"type": "local", "tools": ["*"], **part("cursor").value}
    assert part("opencode").value == {"type": "local", "enabled": True, "command": [*WORDS]}
    for name in ("claude-desktop", "codex", "cursor", "gemini", "windsurf"):
        assert list(part(name).value) == ["command", "args"]


@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_a_newer_entry_replaces_ours_and_keeps_what_was_added_to_it(name: str) -> None:
    old = part(name).insert(sample(name))
    added = {"cursor": ('"args": [', '"disabled": false,\n"args": ['), "codex": ("args = [", "x = 1\nargs = [")}
    find, replaced = added[name]
    head, tail = old.rsplit(find, 1)
    old = head + replaced + tail
    newer = part(name, ("/new/everkept", "serve", "--read-only"))
    after = newer.insert(old)
    assert entry(newer, after)["command"] == "/new/everkept"
    assert entry(newer, after)["args"] == ["serve", "--read-only"]
    assert set(entry(newer, after)) == {"command", "args"} | set(entry(newer, old))
    assert newer.remove(after) == sample(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{"mcpServers": {"everkept": {"command": "npx", "args": ["everkept-js"]}}}'),
        ("cursor", '{"mcpServers": {"everkept": {"command": "npm", "args": ["run", "serve"]}}}'),
        ("cursor", '{"mcpServers": {"everkept": {"command": "/opt/run", "args": ["serve"]}}}'),
        ("cursor", '{"mcpServers": {"everkept": {"url": "https://memory.example"}}}'),
        ("cursor", '{"mcpServers": {"everkept": 3}}'),
        ("cursor", '{"mcpServers": {"everkept": null}}'),
        ("codex", '[mcp_servers.everkept]\nurl = "https://memory.example"\n'),
    ],
)
def test_what_another_wrote_under_our_name_is_replaced_only_by_force(name: str, text: str) -> None:
    with pytest.raises(NameTaken):
        part(name).insert(text)
    assert part(name).remove(text) == text
    forced = part(name, force=True)
    assert entry(forced, forced.insert(text)) == forced.value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{"mcpServers": []}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": null}'),
        ("vscode", '{"servers": "none"}'),
        ("codex", "mcp_servers = 3\n"),
    ],
)
def test_a_surprising_shape_is_refused(name: str, text: str) -> None:
    with pytest.raises(UnexpectedShape):
        part(name).insert(text)
    with pytest.raises(UnexpectedShape):
        part(name).remove(text)
