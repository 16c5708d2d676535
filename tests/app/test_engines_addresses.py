from pathlib import Path

import pytest

from everkept.app.engines import format_place, load_address_settings, parse_address
from everkept.errors import InvalidInput
from everkept.settings import read_settings

SIGNED_IN = {"EVERKEPT_DATABASE_USER": "anna", "EVERKEPT_DATABASE_PASSWORD": "hunter2"}
FLAGS = {"data_dir": Path("here"), "config": "none"}
SETTINGS = read_settings(FLAGS, {})


def test_a_folder_of_either_engine_is_named() -> None:
    for engine in ("sqlite", "surreal"):
        named = load_address_settings(f"{engine}:some/where", FLAGS, {})
        assert (named.engine, named.deployment_mode) == (engine, "embedded-file")
        assert named.data_dir == Path("some/where").absolute()
        assert format_place(named) == f"{engine}:{named.data_dir}"


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("ws://127.0.0.1:8000", "local-server"),
        ("http://localhost:8000", "local-server"),
        ("wss://db.example.com", "remote"),
    ],
)
def test_a_server_is_named_by_its_address(address: str, mode: str) -> None:
    named = load_address_settings(address, FLAGS, {})
    assert (named.engine, named.deployment_mode, named.database_url) == ("surreal", mode, address)
    assert format_place(named) == f"{address} (memory/default)"


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://127.0.0.1:5432/team", "local-server"),
        ("postgresql://db.example.com/team?sslmode=require", "remote"),
    ],
)
def test_a_database_of_postgresql_is_named_by_its_address(address: str, mode: str) -> None:
    named = load_address_settings(address, FLAGS, SIGNED_IN | {"EVERKEPT_NAMESPACE": "ours"})
    assert (named.engine, named.deployment_mode, named.database_url) == ("postgres", mode, address)
    assert format_place(named) == f"{address} (ours)"
    assert parse_address(format_place(named)) == address


@pytest.mark.parametrize(
    ("address", "engine"), [("ws://there", "surreal"), ("postgresql://there/team", "postgres"), ("sqlite:x", "sqlite")]
)
@pytest.mark.parametrize(
    "environment",
    [
        {"EVERKEPT_DATABASE_URL": "postgresql://here/mine"},
        {"EVERKEPT_ENGINE": "postgres", "EVERKEPT_DATABASE_URL": "postgresql://here/mine"},
        {"EVERKEPT_DATABASE_URL": "postgresql://here", "EVERKEPT_DATABASE": "mine"},
        {"EVERKEPT_ENGINE": "surreal", "EVERKEPT_DATABASE_URL": "ws://here"},
        {"EVERKEPT_ENGINE": "sqlite"},
    ],
)
def test_a_place_is_named_whatever_else_the_settings_say(
    address: str, engine: str, environment: dict[str, str]
) -> None:
    named = load_address_settings(address, FLAGS, SIGNED_IN | environment)
    assert named.engine == engine
    assert named.database_url in (address, None)


@pytest.mark.parametrize("address", ["", "sqlite:", "surreal: ", "ws://", "mysql://x/y", "/tmp/x"])
def test_what_names_no_place_is_refused_with_the_forms(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_address_settings(address, FLAGS, {})
    assert caught.value.hint or "ws" in str(caught.value)


def test_a_login_in_an_address_is_used_and_not_shown() -> None:
    named = load_address_settings("ws://root:hunter2@localhost:8000", FLAGS, {})
    assert (named.database_user, named.database_password) == ("root", "hunter2")
    assert format_place(named).startswith("ws://localhost:8000 ")
    assert "hunter2" not in repr(named)


@pytest.mark.parametrize(
    "address", ["mysql://root:hunter2@there/a", "root:hunter2@there/a", "//there/a?password=hunter2"]
)
def test_a_mistyped_address_is_shown_without_its_password(address: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_address_settings(address, FLAGS, {})
    assert "hunter2" not in f"{refused.value} {refused.value.facts}"


def test_what_the_settings_say_themselves_has_a_name_too() -> None:
    assert format_place(SETTINGS) == f"sqlite:{SETTINGS.data_dir}"
    in_memory = read_settings({**FLAGS, "deployment_mode": "embedded-memory"}, {})
    assert format_place(in_memory) == "memory"


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_mistake_is_told_with_the_option_that_has_it(option: str) -> None:
    for address, part in (("postgresql://there/team", "--database-user"), ("ws://", "ws://")):
        with pytest.raises(InvalidInput) as caught:
            load_address_settings(address, FLAGS, {}, named_by=option)
        assert caught.value.facts["argument"] == option
        assert caught.value.message.startswith(f"`{option}` is ")
        assert part in caught.value.message


def test_a_mistake_elsewhere_is_told_as_it_is() -> None:
    with pytest.raises(InvalidInput) as caught:
        load_address_settings("postgresql://there/team", {**FLAGS, "database_user": ""}, {})
    assert caught.value.facts["argument"] == "--database-user"
