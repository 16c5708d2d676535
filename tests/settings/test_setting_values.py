from pathlib import Path
from typing import Any

import pytest

from everkept.errors import InvalidInput
from everkept.settings import (
    DEFAULT_TOOLSETS,
    TOOLSETS,
    Settings,
    choose_toolsets,
    explain_settings,
    find_remote_bank,
    read_settings,
)
from everkept.settings.setting_values import hide_secrets
from everkept.settings.sources import REMOTE_FLAGS


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EVERKEPT_PORT", "eighty"),
        ("EVERKEPT_PORT", "65536"),
        ("EVERKEPT_READ_ONLY", "maybe"),
        ("EVERKEPT_TRANSPORT", "smoke"),
        ("EVERKEPT_TOOLSETS", "graph,magic"),
        ("EVERKEPT_DIALECT", "klingon"),
        ("EVERKEPT_EMBEDDING_MODEL", "huge"),
        ("EVERKEPT_MAX_MEMORIES_PER_SESSION", "0"),
        ("EVERKEPT_RECALL_TIME_LIMIT", "soon"),
        ("EVERKEPT_RECALL_TIME_LIMIT", "0"),
        ("EVERKEPT_RECALL_TIME_LIMIT", "nan"),
        ("MEMORY_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings({"data_dir": tmp_path}, {variable: value})
    assert caught.value.facts["argument"] == variable
    assert caught.value.facts["value"] == value
    assert repr(value) in str(caught.value)


def test_what_is_allowed_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings({"data_dir": tmp_path, "transport": "smoke"}, {})
    assert caught.value.facts["allowed"] == ["stdio", "http"]
    assert caught.value.facts["argument"] == "--transport"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("on", True), ("no", False)])
def test_switches_understand_the_usual_words(tmp_path: Path, text: str, value: Any) -> None:
    assert read_settings({"data_dir": tmp_path}, {"EVERKEPT_READ_ONLY": text}).read_only is value


def test_an_empty_data_folder_is_refused() -> None:
    with pytest.raises(InvalidInput):
        read_settings({"data_dir": ""}, {})


def test_a_home_folder_in_the_data_folder_is_resolved() -> None:
    assert read_settings({"data_dir": "~/x"}, {}).data_dir == Path.home() / "x"


def test_toolsets_are_chosen_by_name(tmp_path: Path) -> None:
    assert choose_toolsets(Settings(tmp_path)) == ("memories", "graph", "history")
    assert choose_toolsets(Settings(tmp_path, toolsets=" graph, ")) == ("graph",)
    with_file = Settings(tmp_path, toolsets="all", gateway_config=tmp_path / "tools.json")
    assert choose_toolsets(with_file) == TOOLSETS
    assert choose_toolsets(Settings(tmp_path, toolsets="all")) == TOOLSETS[:-1]
    for wrong in ("magic", " , "):
        with pytest.raises(InvalidInput):
            choose_toolsets(Settings(tmp_path, toolsets=wrong))


def test_a_setting_of_the_memory_bank_adds_its_tools_unless_tools_were_chosen() -> None:
    assert choose_toolsets(read_settings({"mode": "ask"}, {})) == (*DEFAULT_TOOLSETS, "bank")
    assert choose_toolsets(read_settings({}, {"EVERKEPT_USERNAME": "Ada"})) == (*DEFAULT_TOOLSETS, "bank")
    assert choose_toolsets(read_settings({"mode": "ask", "toolsets": "graph"}, {})) == ("graph",)
    assert choose_toolsets(read_settings({"known_hosts": "x"}, {})) == DEFAULT_TOOLSETS


def test_a_bank_on_another_machine_needs_its_user_host_and_path() -> None:
    flags = {"remote": True, "ssh_user": "me", "ssh_host": "a.org:22", "ssh_path": "/srv/my bank"}
    assert find_remote_bank(read_settings(flags, {})) == "ssh://me@a.org:22/srv/my%20bank"
    assert find_remote_bank(read_settings({}, {})) is None
    for path in ("shop", "~/shop"):
        assert find_remote_bank(read_settings({**flags, "ssh_path": path}, {})) == "ssh://me@a.org:22/~/shop"
    for missing, flag in REMOTE_FLAGS.items():
        with pytest.raises(InvalidInput) as caught:
            find_remote_bank(read_settings({**flags, missing: None}, {}))
        assert caught.value.facts["argument"] == flag
    with pytest.raises(InvalidInput, match="--remote-host needs --remote"):
        find_remote_bank(read_settings({"ssh_host": "a.org"}, {}))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("ws://u:pw@a", "ws://u:***@a"),
        ("wss://:pw@a.org:8000/rpc", "wss://:***@a.org:8000/rpc"),
        ("ws://u:p@w/x y@a", "ws://u:***@a"),
        ("ws://a/rpc?user=u&password=pw&x=1", "ws://a/rpc?user=u&password=***&x=1"),
        ("ws://a?access_token=pw#x", "ws://a?access_token=***#x"),
        ("run --url ws://u:pw@a", "run --url ws://u:***@a"),
        ("ws://u@a:8000/rpc?page=2", "ws://u@a:8000/rpc?page=2"),
        ("user:pass", "user:pass"),
        (8081, 8081),
        (None, None),
    ],
)
def test_the_password_in_an_address_is_not_shown(value: Any, told: Any) -> None:
    assert hide_secrets(value) == told


@pytest.mark.parametrize(
    "address",
    [
        "ws://hunter2@a",
        "u:hunter2@a:8000",
        "ws:/u:hunter2@a",
        "ws://u:hunter2@a:port",
        "ws://a?token=hunter2",
        "a:8000?token=hunter2",
        "smoke://u:hunter2@a",
    ],
)
def test_an_error_does_not_repeat_the_password_in_an_address(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings({}, {"MEMORY_REMOTE_URL": address})
    assert "hunter2" not in f"{caught.value} {caught.value.to_envelope()}"
    assert caught.value.facts["argument"] == "MEMORY_REMOTE_URL"


def test_no_setting_is_explained_with_the_password_in_its_address() -> None:
    environment = {
        "MEMORY_REMOTE_URL": "ws://u:hunter2@a",
        "MEMORY_DEPLOYMENT_MODE": "embedded-file",
        "EVERKEPT_LAUNCHER": "run https://u:hunter2@a",
    }
    told = explain_settings({}, environment)
    assert "hunter2" not in f"{told} {read_settings({}, environment).database_url}"
    values = {item.name: item.value for item in told}
    assert values["MEMORY_REMOTE_URL"] == "ws://a"
    assert values["launcher"] == "run https://u:***@a"
    assert values["database_url"] is None
