from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.settings import TOOLSETS, Settings, build_unset_environment, explain_settings, read_settings
from everkept.settings.setting_values import list_choices
from everkept.settings.sources import REMOTE_FLAGS
from everkept.values import list_fields

# The file with certificates must be there; it has tests of its own.
NAMES = [f.name for f in list_fields(Settings) if f.name not in ("config", "database_ca")]
HINTS = get_type_hints(Settings)
PATHS = [name for name, kind in HINTS.items() if Path in (kind, *get_args(kind))]


def spelled(name: str, index: int) -> str:
    """One of several values of a setting, as a person writes it."""
    kind = HINTS[name]
    if name == "engine":  # PostgreSQL needs an address beside it; it has tests of its own
        return ("sqlite", "surreal", "sqlite")[index]
    if choices := list_choices(kind):
        return choices[index % len(choices)]
    if name == "toolsets":
        return ("all", *TOOLSETS)[index]
    if name == "database_url":
        return ("ws://a.example", "wss://b.example:1", "http://127.0.0.1/rpc")[index]
    if name == "embedding_model":
        return ("everkept-minilm-1", "none", "./model")[index]
    if name == "quota_answer_bytes":
        return ("70000", "80000", "90000")[index]
    return {bool: ("true", "false", "on"), int: ("11", "12", "13"), float: ("1.5", "2.5", "3.5")}.get(
        kind, ("first", "second", "third")
    )[index]


def understood(name: str, text: str, folder: Path) -> Any:
    kind = HINTS[name]
    if kind is bool:
        return text in ("true", "on")
    if kind in (int, float):
        return kind(text)
    if name == "embedding_model" and text.startswith("."):
        return str(folder / text)
    return folder / text if name in PATHS else text


def needed_beside(name: str, *, is_given: bool) -> dict[str, str]:
    """Variables without which a setting is refused."""
    if name in ("namespace", "database"):
        return {"EVERKEPT_ENGINE": "surreal"}
    pair = {"database_user": "DATABASE_PASSWORD", "database_password": "DATABASE_USER"}
    if name in pair and is_given:
        return {"EVERKEPT_DATABASE_URL": "ws://a", f"EVERKEPT_{pair[name]}": "x"}
    return {}


@given(
    name=st.sampled_from(NAMES),
    indexes=st.permutations([0, 1, 2]),
    present=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default(
    tmp_path: Path, name: str, indexes: list[int], present: tuple[bool, bool, bool]
) -> None:
    flag, variable, entry = (spelled(name, index) for index in indexes)
    file = tmp_path / "config.md"
    file.write_text(f"---\n{name}: {entry}\n---\n" if present[2] else "", encoding="utf-8")
    environment = {"EVERKEPT_CONFIG": str(file)}
    environment |= needed_beside(name, is_given=any(present))
    if present[1]:
        environment[f"EVERKEPT_{name.upper()}"] = variable
    flags = {name: flag} if present[0] else {}
    folder = Path.cwd() if name in ("data_dir", "gateway_config", "embedding_model") else Path()
    loaded = getattr(read_settings(flags, environment), name)
    source = {e.name: e.source for e in explain_settings(flags, environment)}[name]
    if present[0]:
        assert loaded == understood(name, flag, folder)
        own = "--" + name.replace("_", "-")
        assert source == f"flag {REMOTE_FLAGS.get(name, own)}"
    elif present[1]:
        assert loaded == understood(name, variable, folder)
        assert source == f"environment EVERKEPT_{name.upper()}"
    elif present[2]:
        assert loaded == understood(name, entry, tmp_path)
        assert source == f"config file {file} line 2"
    else:
        assert loaded == getattr(read_settings({}, {}), name)
        assert source == "default"


def test_an_empty_variable_and_a_flag_of_none_count_as_not_given(tmp_path: Path) -> None:
    environment = {"EVERKEPT_DATA_DIR": str(tmp_path), "EVERKEPT_PROJECT": ""}
    assert read_settings({"port": None}, environment).project is None
    assert read_settings({"port": None}, environment).port == 8081


def test_without_a_data_folder_the_platforms_own_is_used() -> None:
    assert read_settings({}, {}).data_dir.name == "everkept"
    assert read_settings({}, {}).data_dir.is_absolute()


def test_the_working_folder_is_the_clients_project_where_it_says_so(tmp_path: Path) -> None:
    environment = {"CLAUDE_PROJECT_DIR": str(tmp_path / "shop")}
    assert read_settings({"data_dir": tmp_path}, environment).path == tmp_path / "shop"
    assert read_settings({"data_dir": tmp_path, "path": tmp_path}, environment).path == tmp_path
    assert read_settings({"data_dir": tmp_path}, {}).path == Path.cwd()


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("MEMORY_LOG_LEVEL", "warn", "log_level", "warning"),
        ("MEMORY_LOG_LEVEL", "WARN", "log_level", "warning"),
        ("MEMORY_LOG_LEVEL", "Debug", "log_level", "debug"),
        ("MEMORY_DEPLOYMENT_MODE", "embedded-memory", "deployment_mode", "embedded-memory"),
        ("MEMORY_DB_PATH", "~/memories", "data_dir", Path.home() / "memories"),
        ("MEMORY_REMOTE_URL", "wss://a", "database_url", "wss://a"),
        ("MEMORY_SESSION_ID", "s-1", "session_id", "s-1"),
        ("CLAUDE_CODE_SESSION_ID", "s-2", "session_id", "s-2"),
    ],
)
def test_the_variables_of_surrealdb_memory_and_of_the_client_are_honoured(
    variable: str, text: str, name: str, value: object
) -> None:
    assert getattr(read_settings({}, {variable: text}), name) == value
    shown = {item.name: item for item in explain_settings({}, {variable: text})}
    assert shown[name].source == f"environment {variable}"


def test_the_settings_page_has_every_variable_and_key_of_surrealdb_memory() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    variables = ("CONFIG_PATH", "LOG_LEVEL", "DEPLOYMENT_MODE", "DB_PATH", "REMOTE_URL", "SESSION_ID")
    keys = (
        *("deployment_mode", "db_path", "namespace", "database", "embedding_model", "embedding_dimensions"),
        *("max_memories_per_session", "consolidation_on_shutdown", "log_level"),
        *("remote_url", "remote_user", "remote_pass"),
    )
    for name in (*(f"MEMORY_{variable}" for variable in variables), *keys):
        assert f"`{name}`" in page


def test_our_own_variable_goes_before_the_others() -> None:
    environment = {"MEMORY_SESSION_ID": "b", "CLAUDE_CODE_SESSION_ID": "c"}
    assert read_settings({}, environment).session_id == "b"
    assert read_settings({}, environment | {"EVERKEPT_SESSION_ID": "a"}).session_id == "a"


def test_every_setting_is_explained_and_a_password_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "config.md"
    text = "---\ndeployment_mode: embedded-file\nremote_pass: hunter2\nport: 1\n---\n"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    told = explain_settings({"config": file, "project": "shop"}, {"MEMORY_LOG_LEVEL": "warn"})
    assert [item.name for item in told] == [field.name for field in list_fields(Settings)]
    by_name = {item.name: (item.value, item.source) for item in told}
    assert by_name["port"] == (1, f"config file {file} line 4")
    assert by_name["project"] == ("shop", "flag --project")
    assert by_name["log_level"] == ("warning", "environment MEMORY_LOG_LEVEL")
    assert by_name["config"] == (str(file), "flag --config")
    assert by_name["host"] == ("127.0.0.1", "default")
    assert by_name["database_password"] == ("***", f"config file {file} line 3")
    assert "hunter2" not in str(told)


def test_a_child_with_flags_alone_inherits_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("EVERKEPT_PORT", "EVERKEPT_DATABASE_PASSWORD", "MEMORY_DB_PATH", "MEMORY_REMOTE_URL")
    for name in (*ours, "OTHER"):
        monkeypatch.setenv(name, "debug")
    environment = build_unset_environment()
    assert environment["OTHER"] == "debug"
    assert environment.keys().isdisjoint(ours)
    assert read_settings({}, environment).config is None


def test_over_http_the_folder_of_the_program_counts_only_where_it_is_named(tmp_path: Path) -> None:
    assert read_settings({}, {}).path == Path.cwd()
    assert read_settings({"transport": "http"}, {}).path is None
    assert read_settings({"transport": "http", "project": "auto"}, {}).path == Path.cwd()
    assert read_settings({"transport": "http", "path": tmp_path}, {}).path == tmp_path
