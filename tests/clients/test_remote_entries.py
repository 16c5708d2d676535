from pathlib import Path

import pytest

from everkept.clients.config_files import CLIENTS, ClientEnvironment, UnexpectedShape, get_client
from everkept.clients.entries import NameTaken
from everkept.clients.remote_entries import RemoteConfigPart

SAMPLES = Path(__file__).parent / "samples"
DOCS = Path(__file__).parents[2] / "docs" / "team-clients.md"
URL, VARIABLE = "https://memory.example.com/mcp", "EVERKEPT_TOKEN"


def build_part(name: str, *, force: bool = False) -> RemoteConfigPart:
    client = get_client(name, ClientEnvironment({}, Path("/home/ada"), "linux", Path("/shop")))
    header_file = Path("/home/you/everkept-headers.txt") if name == "claude-desktop" else None
    return RemoteConfigPart(client.user_file, client, URL, VARIABLE, header_file, force)


def read_sample(name: str) -> str:
    ending = "toml" if name == "codex" else "json"
    return (SAMPLES / f"{name}.{ending}").read_bytes().decode("utf-8")


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_gets_its_entry_and_keeps_everything_else(name: str) -> None:
    part, before = build_part(name), read_sample(name)
    after = part.insert(before)
    values = part.editor.parse_text(after)
    assert values[part.path[0]]["everkept"] == part.value
    assert part.exclude_ours(values) == part.exclude_ours(part.editor.parse_text(before))
    assert part.insert(after) == after
    assert part.remove(after) == before


@pytest.mark.parametrize("name", CLIENTS)
def test_the_page_for_teams_shows_what_setup_writes(name: str) -> None:
    part = build_part(name)
    if name == "claude-desktop":  # a path of this system is in it
        assert '"--header-file", "/home/you/everkept-headers.txt"' in DOCS.read_text(encoding="utf-8")
    else:
        assert part.content.strip() in DOCS.read_text(encoding="utf-8")


def test_an_entry_of_another_program_is_replaced_only_by_force() -> None:
    before = '{"mcpServers": {"everkept": {"command": "other"}}}'
    with pytest.raises(NameTaken):
        build_part("cursor").insert(before)
    after = build_part("cursor", force=True).insert(before)
    assert URL in after
    assert "other" not in after


def test_inputs_in_another_form_are_left_alone() -> None:
    with pytest.raises(UnexpectedShape):
        build_part("vscode").insert('{"inputs": {"id": "everkept-token"}}')
