import getpass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import EverkeptError, InvalidInput, Refused
from everkept.settings import (
    build_engine_flags,
    explain_settings,
    get_standby_folder,
    is_on_server,
    list_warnings,
    read_settings,
)
from everkept.values import replace

WHO = {"EVERKEPT_DATABASE_USER": "anna"}
HERE = "postgresql://127.0.0.1:5432/everkept"
THERE = "postgresql://db.example.com/everkept"
SIGNED_IN = WHO | {"EVERKEPT_DATABASE_PASSWORD": "hunter2"}


def error(environment: dict[str, str], **flags: object) -> EverkeptError:
    with pytest.raises(EverkeptError) as caught:
        read_settings(flags, environment)
    assert "hunter2" not in f"{caught.value} {caught.value.to_envelope()}"
    return caught.value


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        (HERE, "local-server"),
        ("postgresql://[::1]/everkept", "local-server"),
        ("postgresql://localhost:1/everkept?sslmode=require", "local-server"),
        (THERE, "remote"),
        ("postgresql://127.evil.example/everkept", "remote"),
    ],
)
@pytest.mark.parametrize("engine", [None, "postgres"])
def test_an_address_of_postgresql_implies_its_engine_and_its_mode(address: str, mode: str, engine: str | None) -> None:
    environment = WHO | {"EVERKEPT_DATABASE_URL": address}
    settings = read_settings({"engine": engine}, environment)
    assert (settings.engine, settings.deployment_mode) == ("postgres", mode)
    assert (settings.database_url, settings.database) == (address, "everkept")
    assert is_on_server(settings)
    told = {each.name: each.source for each in explain_settings({}, environment)}
    for name in ("engine", "deployment_mode", "database"):
        assert told[name] == "follows from EVERKEPT_DATABASE_URL"


@pytest.mark.parametrize("scheme", ["postgres", "POSTGRES", "PostgreSQL"])
def test_a_scheme_of_postgresql_is_written_in_one_way(scheme: str) -> None:
    settings = read_settings({"database_url": f"{scheme}://db.example.com/everkept"}, WHO)
    assert settings.database_url == THERE


def test_a_mode_that_was_said_stays_beside_an_address() -> None:
    settings = read_settings({"deployment_mode": "remote", "database_url": HERE}, WHO)
    assert (settings.engine, settings.deployment_mode) == ("postgres", "remote")


@pytest.mark.parametrize("mode", [None, "local-server", "remote"])
def test_postgresql_needs_an_address(mode: str | None) -> None:
    wrong = error(WHO, engine="postgres", deployment_mode=mode)
    assert isinstance(wrong, InvalidInput)
    assert "an address such as postgresql://" in wrong.message


@pytest.mark.parametrize("mode", ["embedded-file", "embedded-memory"])
def test_postgresql_is_never_embedded(mode: str) -> None:
    refused = error({"EVERKEPT_DEPLOYMENT_MODE": mode}, engine="postgres")
    assert isinstance(refused, Refused)
    assert "PostgreSQL is always a server" in refused.message
    assert "`EVERKEPT_DEPLOYMENT_MODE`" in refused.message
    assert not is_on_server(read_settings({}, {"EVERKEPT_DEPLOYMENT_MODE": mode, "MEMORY_REMOTE_URL": HERE}))
    assert is_on_server(read_settings({"database_url": HERE}, WHO | {"EVERKEPT_DEPLOYMENT_MODE": mode}))


@pytest.mark.parametrize(
    ("engine", "address", "other"),
    [("sqlite", HERE, "PostgreSQL"), ("surreal", HERE, "PostgreSQL"), ("postgres", "ws://db.example.com", "SurrealDB")],
)
def test_an_engine_is_refused_beside_the_address_of_another(engine: str, address: str, other: str) -> None:
    refused = error(WHO | {"EVERKEPT_DATABASE_URL": address}, engine=engine)
    assert isinstance(refused, Refused)
    assert refused.facts["argument"] == "--engine"
    assert f"`EVERKEPT_DATABASE_URL` asks for a server of {other}." in refused.message


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///everkept",
        "postgresql://:5432/everkept",
        "postgresql://a:port/everkept",
        "postgresql://a:0/everkept",
        "postgresql://a,b/everkept",
        "postgresql://a:1,b:2/everkept",
        "postgresql://a/everkept#x",
        "postgresql://a/re collect",
        "postgresql://a/one/two",
        "postgresql://a/%00",
        "postgresql://a/" + "x" * 64,
        "postgresql://a/everkept?",
        "postgresql://a/everkept?sslmode=",
        "postgresql://a/everkept?sslmode=sometimes",
        "postgresql://a/everkept?sslmode=require&options=x",
        "postgresql://a/everkept?host=b",
        "postgresql://a/everkept?host=/run/postgresql",
        "postgresql:///everkept?host=b",
        "postgresql:///everkept?host=/run/postgresql&port=0",
    ],
)
def test_what_is_no_address_of_postgresql_is_told(address: str) -> None:
    if address.endswith("?"):  # nothing is asked for behind it
        assert read_settings({"database_url": address}, WHO).database_url == address[:-1]
        return
    wrong = error(WHO, database_url=address)
    assert isinstance(wrong, InvalidInput)
    assert wrong.facts["argument"] == "--database-url"


def test_all_that_may_stand_behind_an_address_is_named() -> None:
    wrong = error(WHO, database_url=f"{HERE}?connect_timeout=3")
    assert "sslmode" in wrong.message
    assert "verify-full" in wrong.message


@pytest.mark.parametrize(
    ("address", "bare"),
    [
        ("postgresql://bob:hun%40ter2@a/everkept", "postgresql://a/everkept"),
        ("postgres://bob:hun@ter2@a:1/everkept?sslmode=require", "postgresql://a:1/everkept?sslmode=require"),
        ("postgresql://a/everkept?user=bob&password=hun%40ter2", "postgresql://a/everkept"),
        ("postgresql:///everkept?host=/run/Pg&user=bob&password=hun@ter2", "postgresql:///everkept?host=/run/Pg"),
        ("wss://bob:hun%40ter2@a", "wss://a"),
    ],
)
def test_a_login_in_an_address_is_used_and_neither_stored_nor_shown(address: str, bare: str) -> None:
    for flags, environment in (({"database_url": address}, {}), ({}, {"EVERKEPT_DATABASE_URL": address})):
        settings = read_settings(flags, environment)
        assert (settings.database_url, settings.database_user) == (bare, "bob")
        assert settings.database_password == "hun@ter2"
        assert "ter2" not in repr(settings)
        shown = {each.name: each.value for each in explain_settings(flags, environment)}
        assert shown["database_url"] == bare
        assert "ter2" not in repr(shown)


def test_a_login_in_an_address_is_refused_beside_another_unless_the_address_is_for_this_run() -> None:
    address = "postgresql://bob:hunter2@a/everkept"
    refused = error(WHO | {"EVERKEPT_DATABASE_URL": address})
    assert isinstance(refused, Refused)
    assert refused.facts["argument"] == "EVERKEPT_DATABASE_USER"
    assert read_settings({"database_url": address}, WHO).database_user == "bob"
    assert "must not be empty" in error({}, database_url="postgresql://:hunter2@a/everkept").message


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("postgresql:///everkept?host=/run/Pg", "postgresql:///everkept?host=/run/Pg"),
        ("postgresql:///everkept?host=/run/Pg&port=5433", "postgresql:///everkept?host=/run/Pg&port=5433"),
        ("postgres://%2Frun%2FPg:5433/everkept", "postgresql:///everkept?host=/run/Pg&port=5433"),
    ],
)
def test_an_address_may_be_the_socket_of_a_server_on_this_machine(address: str, normal: str) -> None:
    settings = read_settings({"database_url": address}, SIGNED_IN)
    assert (settings.database_url, settings.deployment_mode) == (normal, "local-server")
    assert list_warnings(settings) == ()
    assert read_settings({"database_url": address}, {}).database_user == getpass.getuser()
    other = read_settings({"database_url": normal.replace("/run/Pg", "/run/other")}, SIGNED_IN)
    assert get_standby_folder(other) != get_standby_folder(settings)


def test_a_database_is_named_by_the_address_or_by_its_setting() -> None:
    bare = {"database_url": "postgresql://db.example.com"}
    assert "names no database" in error(WHO, **bare).message
    for address in (bare["database_url"], f"{bare['database_url']}/", THERE):
        settings = read_settings({"database_url": address}, WHO | {"EVERKEPT_DATABASE": "everkept"})
        assert (settings.database_url, settings.database) == (THERE, "everkept")
    for name in ("", "a/b", "x" * 64):
        wrong = error(WHO, **bare, database=name)
        assert wrong.facts["argument"] == "--database"


def test_two_names_of_a_database_are_refused_unless_the_address_is_for_this_run() -> None:
    named = WHO | {"EVERKEPT_DATABASE": "other"}
    refused = error({**named, "EVERKEPT_DATABASE_URL": THERE})
    assert isinstance(refused, Refused)
    assert refused.facts["argument"] == "EVERKEPT_DATABASE"
    assert read_settings({"database_url": THERE}, named).database == "everkept"


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="/?#"), min_size=1))
def test_a_database_may_have_any_name_that_postgresql_allows(name: str) -> None:
    from urllib.parse import quote, unquote

    address = f"postgresql://a/{quote(name, safe='')}"
    if not name.isprintable() or len(name.encode("utf-8")) > 63:
        assert isinstance(error(WHO, database_url=address), InvalidInput)
        return
    settings = read_settings({"database_url": address}, WHO)
    assert settings.database == name
    assert unquote(settings.database_url or "").endswith(f"/{name}")


def test_a_user_of_postgresql_is_named_and_may_be_known_without_a_password() -> None:
    settings = read_settings({"database_url": HERE}, SIGNED_IN)
    assert (settings.database_user, settings.database_password) == ("anna", "hunter2")
    assert read_settings({"database_url": HERE}, WHO).database_password is None
    unnamed = error({}, database_url=HERE)
    assert unnamed.facts["argument"] == "--database-url"
    assert "--database-user" in unnamed.message
    alone = {"EVERKEPT_DATABASE_PASSWORD": "hunter2"}
    assert "needs a user" in error(alone, database_url=HERE).message
    assert "must not be empty" in error({}, database_url=HERE, database_user="").message


def test_a_schema_has_a_name_that_postgresql_takes() -> None:
    assert read_settings({"database_url": HERE}, WHO).namespace == "memory"
    for good in ("a", "My-own_1", "x" * 63, "history"):
        assert read_settings({"database_url": HERE, "namespace": good}, WHO).namespace == good
    for bad in ("", "a b", 'a"b', "x" * 64, "pg_own", "PG_own", "information_schema"):
        wrong = error(WHO, database_url=HERE, namespace=bad)
        assert wrong.facts["argument"] == "--namespace"


@pytest.mark.parametrize(
    ("address", "warned_of"),
    [
        (THERE, ""),
        (f"{THERE}?sslmode=verify-full", ""),
        (f"{THERE}?sslmode=verify-ca", ""),
        (f"{THERE}?sslmode=disable", "unencrypted"),
        (f"{THERE}?sslmode=require", "does not verify"),
        (f"{HERE}?sslmode=disable", ""),
        (f"{HERE}?sslmode=require", ""),
    ],
)
def test_an_open_or_unchecked_way_to_postgresql_is_warned_of(address: str, warned_of: str) -> None:
    told = list_warnings(read_settings({"database_url": address}, SIGNED_IN))
    assert [warned_of in each for each in told] == [True] * bool(warned_of)
    assert "hunter2" not in str(told)


def test_certificates_for_an_open_way_to_postgresql_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    flags = {"database_url": f"{HERE}?sslmode=disable", "database_ca": tmp_path / "ca.pem"}
    [told] = list_warnings(read_settings(flags, WHO))
    assert "database_ca" in told
    checked = read_settings({**flags, "database_url": f"{THERE}?sslmode=require"}, WHO)
    assert list_warnings(checked) == ()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (THERE, "postgres://DB.example.com:5432/everkept?sslmode=require", True),
        (HERE, "postgresql://localhost/everkept", True),
        (HERE, "postgresql://[::1]/everkept?sslmode=disable", True),
        (HERE, "postgresql://127.0.0.1:5433/everkept", False),
        (HERE, "postgresql://127.0.0.1/Everkept", False),
        (HERE, "ws://127.0.0.1:5432/everkept", False),
        (HERE, THERE, False),
    ],
)
def test_what_stands_in_for_postgresql_is_found_however_its_address_is_written(
    one: str, other: str, is_same: bool
) -> None:
    folders = [get_standby_folder(read_settings({"database_url": each}, SIGNED_IN)) for each in (one, other)]
    assert (folders[0] == folders[1]) == is_same


def test_no_two_schemas_share_what_stands_in_for_them() -> None:
    settings = read_settings({"database_url": HERE}, WHO)
    assert get_standby_folder(settings) != get_standby_folder(replace(settings, namespace="other"))


def test_another_process_is_led_to_postgresql_by_flags() -> None:
    flags = {"database_url": f"{THERE}?sslmode=require", "database_user": "anna"}
    led = build_engine_flags(read_settings(flags, WHO))
    assert led == [
        *("--engine", "postgres", "--database-url", f"{THERE}?sslmode=require"),
        *("--database-user", "anna"),
    ]
