import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.clients import jsonc
from everkept.clients.config_changes import ConfigChange, apply_changes, plan_removal, plan_setup
from everkept.clients.config_files import CLIENTS, ClientEnvironment, ConfigFileContent, get_client
from everkept.clients.entries import ConfigPart, JoinedConfigPart, ServerConfigPart
from everkept.clients.hook_entries import HOOK_FORMATS, HooksConfigPart
from everkept.errors import Conflict, EverkeptError, Refused

SAMPLES = Path(__file__).parent / "samples"
WORDS = ("/opt/everkept", "serve", "--project", "auto")
NOW = "20260102-030405"


def part(file: Path, name: str = "cursor", *, force: bool = False) -> ServerConfigPart:
    client = get_client(name, ClientEnvironment({}, file.parent, "linux", file.parent))
    return ServerConfigPart(file, client, WORDS, force)


def hooks(file: Path) -> HooksConfigPart:
    return HooksConfigPart(file, lambda event: f"/opt/everkept hook {event}")


def make(*parts: ConfigPart, undo: bool = False, copies: Path | None = None) -> list[Path | None]:
    return [done.backup for done in apply_changes(parts, NOW, undo=undo, copies=copies)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_server_and_hooks_in_one_file_are_one_change(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    before = (SAMPLES / "gemini.json").read_bytes()
    file.write_bytes(before)
    form = HOOK_FORMATS["gemini"]
    both = JoinedConfigPart((part(file, "gemini"), HooksConfigPart(file, "/opt/everkept hook {}".format, (), form)))
    (backup,) = make(both)
    assert backup is not None
    values = jsonc.parse_text(file.read_text("utf-8"))
    assert "everkept" in values["mcpServers"]
    assert set(values["hooks"]) == set(form.events)
    assert make(both) == []
    make(both, undo=True)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_that_setup_created_is_removed_again(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config"
    for _ in range(2):  # the second time there is a copy, with our entries in it
        assert make(part(file, name)) == [None]
        (backup,) = make(part(file, name), undo=True)
        assert not file.exists()
        assert backup is not None


def test_a_file_that_setup_created_stays_if_others_use_it(tmp_path: Path) -> None:
    file = tmp_path / "config"
    make(part(file))
    file.write_text(file.read_text("utf-8") + "// mine\n", encoding="utf-8")
    make(part(file), undo=True)
    assert "// mine" in file.read_text("utf-8")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_is_changed_kept_and_given_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config"
    sample = next(SAMPLES.glob(f"{name}.*")).read_bytes()
    for before in (sample, b"\xef\xbb\xbf" + sample):
        file.write_bytes(before)
        (backup,) = make(part(file, name))
        assert backup is not None
        assert backup.read_bytes() == before
        assert file.read_bytes() != before
        assert make(part(file, name)) == []
        make(part(file, name), undo=True)
        assert file.read_bytes() == before
        assert make(part(file, name), undo=True) == []


@pytest.mark.parametrize(
    "before",
    [
        "{}",
        "{ }\n",
        "{\n\n}",
        '{"mcpServers": {}}',
        '{"mcpServers": {\n  }}',
        '{\n  "a": 1,\n  "mcpServers": {\n  },\n}',
        "",
        "// nothing\n",
    ],
)
def test_what_was_empty_before_is_empty_in_the_same_way_again(tmp_path: Path, before: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(before, encoding="utf-8", newline="")
    make(part(file))
    make(part(file), undo=True)
    assert file.read_bytes().decode("utf-8") == before


@pytest.mark.parametrize(
    "before",
    [
        "{}",
        '{"hooks": {}}',
        '{"hooks": {\n}, "a": 1}',
        '{"hooks": {"SessionStart": [], "Stop": []}}',
        '{"hooks": {"SessionStart": [ {"hooks": [ ]}, {"matcher": "x"}]}}',
    ],
)
def test_hooks_that_were_empty_before_are_so_again(tmp_path: Path, before: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(before, encoding="utf-8", newline="")
    for _ in range(2):
        make(hooks(file))
        make(hooks(file), undo=True)
        assert file.read_bytes().decode("utf-8") == before


def test_the_change_of_another_since_then_stays(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}', encoding="utf-8")
    make(part(file))
    values = json.loads(file.read_text(encoding="utf-8"))
    values["mcpServers"]["later"] = {"command": "later"}
    file.write_text(json.dumps(values), encoding="utf-8")
    make(part(file), undo=True)
    assert json.loads(file.read_text(encoding="utf-8")) == {"mcpServers": {"later": {"command": "later"}}}


def test_a_new_comment_is_not_lost_to_the_copy(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}', encoding="utf-8")
    make(part(file))
    with file.open("a", encoding="utf-8") as stream:
        stream.write("// mine")
    make(part(file), undo=True)
    assert file.read_text(encoding="utf-8").endswith("// mine")


def test_copies_of_a_projects_file_are_kept_elsewhere_and_found_again(tmp_path: Path) -> None:
    before = b'{"mcpServers": {\n  }}'
    files = [tmp_path / "shop" / name / "mcp.json" for name in (".cursor", ".vscode")]
    copies = tmp_path / "data" / "copies"
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(before)
        (copy,) = make(part(file), copies=copies)
        assert copy is not None
        assert copy.is_relative_to(copies)
        assert copy.read_bytes() == before
    for file in files:
        make(part(file), undo=True, copies=copies)
        assert file.read_bytes() == before
        assert names(file.parent) == ["mcp.json"]


class Careless(HooksConfigPart):
    """Takes every hook for its own."""

    def insert(self, text: str) -> str:
        return HooksConfigPart.insert(self, self.remove(text))

    def remove(self, text: str) -> str:
        return jsonc.remove_value(text, ("hooks",))


@pytest.mark.parametrize(
    ("event", "command"),
    [
        ("SessionStart", "/opt/run hook SessionStart"),
        ("PostToolUse", "$CLAUDE_PROJECT_DIR/bin/run hook PostToolUse"),
        ("SessionEnd", "everkept hook lint"),
        ("Stop", "everkept hook Stop"),
    ],
)
def test_the_loss_of_a_hook_of_another_is_noticed_whoever_takes_it_for_ours(
    tmp_path: Path, event: str, command: str
) -> None:
    file = tmp_path / "settings.json"
    theirs = [{"hooks": [{"type": "command", "command": command}]}]
    ours = jsonc.parse_text(hooks(file).content)["hooks"]
    both = {**ours, event: [*theirs, *ours.get(event, [])]}
    file.write_text(json.dumps({"hooks": both}), encoding="utf-8")
    before = file.read_bytes()
    for undo in (False, True):
        with pytest.raises(Refused):
            make(Careless(file, hooks(file).line), undo=undo)
    assert file.read_bytes() == before


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    change = plan_setup(part(file))
    assert change.before is None
    assert not file.parent.exists()
    assert make(part(file)) == [None]
    assert file.read_text(encoding="utf-8") == part(file).content
    assert plan_removal(part(tmp_path / "none.json")).is_needed is False


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cursor", b'{"mcpServers": {'),
        ("cursor", b'{"mcpServers": []}'),
        ("cursor", b"[]"),
        ("cursor", b'{"mcpServers": {}, "mcpServers": {}}'),
        ("cursor", b'{"mcpServers": {"everkept": {"command": "other"}}}'),
        ("cursor", b"\xff\xfe{\x00}\x00"),
        ("codex", b"[mcp_servers"),
        ("codex", b"mcp_servers = { a = { command = 'a' } }"),
        ("codex", b"mcp_servers = 1"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_stays(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    for act in (lambda: plan_setup(part(file, name)), lambda: make(part(file, name))):
        with pytest.raises(Refused) as raised:
            act()
        assert str(file) in raised.value.message
    assert file.read_bytes() == content
    assert names(tmp_path) == ["config"]


def test_a_refusal_tells_the_line_and_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{\n  "a": 1\n  "b": 2\n}', encoding="utf-8")
    with pytest.raises(Refused) as raised:
        plan_setup(part(file))
    assert "line 3" in raised.value.message
    assert "--print" in str(raised.value.hint)


def test_what_cannot_be_read_cannot_be_taken_out_either(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"everkept"', encoding="utf-8")
    with pytest.raises(Refused):
        make(part(file), undo=True)
    assert names(tmp_path) == ["mcp.json"]


def test_a_file_that_can_be_read_but_not_extended_is_not_called_broken(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("mcp_servers = { a = { command = 'a' } }", encoding="utf-8")
    with pytest.raises(Refused) as raised:
        plan_setup(part(file, "codex"))
    assert "does not allow" in raised.value.message


def test_two_files_are_changed_together_or_not_at_all(tmp_path: Path) -> None:
    one, other = tmp_path / "mcp.json", tmp_path / "settings.json"
    one.write_text('{"a": 1}', encoding="utf-8")
    other.write_text('{"b": 1}', encoding="utf-8")
    other.chmod(0o444)
    with pytest.raises(EverkeptError):
        make(part(one), hooks(other))
    assert one.read_text(encoding="utf-8") == '{"a": 1}'
    assert other.read_text(encoding="utf-8") == '{"b": 1}'
    other.chmod(0o644)
    assert names(tmp_path) == ["mcp.json", "settings.json"]
    new = tmp_path / "new.json"
    other.write_text("{", encoding="utf-8")
    with pytest.raises(EverkeptError):
        make(part(new), hooks(other))
    assert not new.exists()
    other.write_text('{"b": 1}', encoding="utf-8")
    assert len(make(part(one), hooks(other))) == 2


def test_a_file_that_changes_at_this_moment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"a": 1}', encoding="utf-8")
    sync = os.fsync

    def meanwhile(descriptor: int) -> None:
        sync(descriptor)
        file.write_text('{"a": 2}', encoding="utf-8")

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(Conflict):
        make(part(file))
    assert file.read_text(encoding="utf-8") == '{"a": 2}'
    assert names(tmp_path) == ["mcp.json"]


def test_the_difference_shows_what_changes_and_hides_what_is_secret(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes((SAMPLES / "cursor.json").read_bytes())
    diff = plan_setup(part(file)).diff
    added = [line for line in diff.splitlines() if line.startswith("+")]
    assert any('"/opt/everkept"' in line for line in added)
    assert "hunter2" not in diff
    assert diff.startswith("@@ line ")


def test_of_a_file_on_one_long_line_only_the_place_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"x": ["long"] * 1000, "mcpServers": {"a": {}}}), encoding="utf-8")
    diff = plan_setup(part(file)).diff
    assert "everkept" in diff
    assert len(diff) < 1000


lines = st.lists(st.sampled_from(["{", "}", '  "a": 1,', '  "b": 2', ""]), max_size=12)


@given(lines, lines)
def test_what_is_gone_and_what_is_new_can_be_read_from_the_difference(old: list[str], new: list[str]) -> None:
    before = ConfigFileContent(b"", "\n".join(old), has_mark=False)
    change = ConfigChange(part(Path("mcp.json")), before, "\n".join(new))
    shown = [line for line in change.diff.split("\n") if line[:1] in ("+", "-")]
    balance = len([line for line in shown if line[0] == "+"]) - len([line for line in shown if line[0] == "-"])
    assert balance == len("\n".join(new).splitlines()) - len("\n".join(old).splitlines())
