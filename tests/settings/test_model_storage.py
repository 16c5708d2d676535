import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import EverkeptError, InvalidInput, Refused
from everkept.settings import (
    Settings,
    build_engine_flags,
    explain_settings,
    get_standby_folder,
    get_surreal_folder,
    is_on_server,
    keep_surreal_commits,
    list_warnings,
    read_settings,
)
from everkept.values import replace

SIGNED_IN = {"EVERKEPT_DATABASE_USER": "root", "EVERKEPT_DATABASE_PASSWORD": "hunter2"}


def error(environment: dict[str, str], **flags: object) -> EverkeptError:
    with pytest.raises(EverkeptError) as caught:
        read_settings(flags, environment)
    assert "hunter2" not in f"{caught.value} {caught.value.to_envelope()}"
    return caught.value


@pytest.mark.parametrize("mode", ["local-server", "remote"])
def test_a_mode_of_a_server_is_one_of_surrealdb(mode: str) -> None:
    environment = {"MEMORY_DEPLOYMENT_MODE": mode, "MEMORY_REMOTE_URL": "ws://db.example:8000"}
    settings = read_settings({}, environment)
    assert (settings.engine, settings.deployment_mode) == ("surreal", mode)
    assert settings.database_url == "ws://db.example:8000"
    assert is_on_server(settings)


@pytest.mark.parametrize("mode", ["embedded-file", "embedded-memory"])
@pytest.mark.parametrize("engine", ["sqlite", "surreal"])
def test_an_embedded_mode_is_one_of_either_engine(mode: str, engine: str) -> None:
    settings = read_settings({"engine": engine}, {"MEMORY_DEPLOYMENT_MODE": mode})
    assert (settings.engine, settings.deployment_mode) == (engine, mode)
    assert not is_on_server(settings)


def test_without_a_word_it_is_sqlite_in_a_file() -> None:
    settings = read_settings({}, {})
    assert (settings.engine, settings.deployment_mode) == ("sqlite", "embedded-file")
    assert settings.database_timeout == 10.0


def test_a_local_server_has_an_address_by_itself_and_a_remote_one_needs_it() -> None:
    local = read_settings({"deployment_mode": "local-server"}, {})
    assert local.database_url == "ws://127.0.0.1:8000"
    missing = error({"MEMORY_DEPLOYMENT_MODE": "remote"})
    assert isinstance(missing, InvalidInput)
    assert missing.facts["argument"] == "MEMORY_DEPLOYMENT_MODE"
    for name in ("`database_url`", "`remote_url`", "MEMORY_REMOTE_URL"):
        assert name in missing.message


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("ws://localhost:8000", "local-server"),
        ("http://127.0.0.7", "local-server"),
        ("wss://[::1]:1/rpc", "local-server"),
        ("ws://db.localhost", "local-server"),
        ("ws://127.evil.example", "remote"),
        ("ws://10.0.0.1:8000", "remote"),
        ("https://db.example", "remote"),
    ],
)
def test_an_address_implies_its_mode(address: str, mode: str) -> None:
    settings = read_settings({}, {"EVERKEPT_DATABASE_URL": address})
    assert (settings.engine, settings.deployment_mode) == ("surreal", mode)
    assert settings.database_url == address


def test_what_follows_is_explained_by_what_it_follows_from() -> None:
    told = {item.name: item.source for item in explain_settings({}, {"MEMORY_REMOTE_URL": "ws://a"})}
    assert told["deployment_mode"] == "follows from MEMORY_REMOTE_URL"
    assert told["engine"] == "follows from MEMORY_REMOTE_URL"
    told = {item.name: item.source for item in explain_settings({"deployment_mode": "local-server"}, {})}
    assert told["database_url"] == "default of local-server"


def test_an_address_is_left_alone_beside_an_embedded_mode() -> None:
    environment = {"MEMORY_REMOTE_URL": "nonsense", "MEMORY_DEPLOYMENT_MODE": "embedded-file"}
    settings = read_settings({}, environment)
    assert (settings.engine, settings.deployment_mode) == ("sqlite", "embedded-file")
    assert settings.database_url is None


def test_an_address_that_is_given_for_one_run_is_used_whatever_the_file_says() -> None:
    embedded = {"MEMORY_DEPLOYMENT_MODE": "embedded-file"}
    settings = read_settings({"database_url": "ws://db.example"}, embedded)
    assert settings.deployment_mode == "remote"
    assert settings.database_url == "ws://db.example"
    flags = {"database_url": "ws://localhost"}
    assert read_settings(flags, {"MEMORY_DEPLOYMENT_MODE": "remote"}).deployment_mode == "remote"
    assert not is_on_server(read_settings({**flags, "deployment_mode": "embedded-memory"}, {}))


@pytest.mark.parametrize("variable", ["MEMORY_DEPLOYMENT_MODE", "MEMORY_REMOTE_URL"])
def test_sqlite_is_refused_beside_what_asks_for_a_server(variable: str) -> None:
    value = "remote" if variable.endswith("MODE") else "ws://a"
    refused = error({variable: value}, engine="sqlite")
    assert isinstance(refused, Refused)
    assert refused.facts["argument"] == "--engine"
    assert f"`{variable}`" in refused.message
    allowed = ["surreal", "postgres"] if variable.endswith("MODE") else ["surreal"]
    assert refused.facts["allowed"] == allowed


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "db.example",
        "ftp://a",
        "mem://",
        "ws://",
        "ws://:8000",
        "ws://a:port",
        "ws://a:0",
        "ws://a:65536",
        "ws://[::1",
        "ws://a b",
        "ws://a\n.example",
        "ws://a?x=1",
        "ws://a#x",
    ],
)
def test_what_is_no_address_of_a_server_is_told(address: str) -> None:
    wrong = error({"EVERKEPT_DATABASE_URL": address})
    assert isinstance(wrong, InvalidInput)
    assert wrong.facts["argument"] == "EVERKEPT_DATABASE_URL"
    assert "ws://127.0.0.1:8000" in wrong.message


def test_a_user_in_an_address_needs_a_password_too() -> None:
    wrong = error({}, database_url="wss://root@a")
    for place in ("EVERKEPT_DATABASE_PASSWORD", "remote_pass"):
        assert place in wrong.message
    assert "must not be empty" in error({}, database_url="http://:hunter2@a").message


def test_a_scheme_counts_however_it_is_written() -> None:
    assert read_settings({"database_url": "WSS://Db.Example"}, {}).database_url == "wss://Db.Example"


def test_a_user_and_a_password_go_together() -> None:
    server = {"EVERKEPT_DATABASE_URL": "wss://a"}
    settings = read_settings({}, server | SIGNED_IN)
    assert (settings.database_user, settings.database_password) == ("root", "hunter2")
    for variable, value in SIGNED_IN.items():
        assert error(server | {variable: value}).facts["argument"] == variable
    assert "must not be empty" in error(server, database_user="").message


def test_a_password_without_a_server_waits_for_a_command_that_names_one() -> None:
    settings = read_settings({}, SIGNED_IN)
    assert (settings.engine, settings.database_password) == ("sqlite", "hunter2")
    assert read_settings({"database_user": "root"}, {}).database_user == "root"


def test_a_password_is_shown_nowhere() -> None:
    environment = SIGNED_IN | {"MEMORY_REMOTE_URL": "ws://db.example"}
    settings, told = read_settings({}, environment), explain_settings({}, environment)
    assert "hunter2" not in f"{settings!r} {told} {settings.database_password!r}"
    assert "hunter2" not in f"{replace(settings, port=1)} {list_warnings(settings)}"
    assert "hunter2" not in repr(Settings(Path(), database_password="hunter2"))
    by_name = {item.name: (item.value, item.source) for item in told}
    place = "environment EVERKEPT_DATABASE_PASSWORD"
    assert by_name["database_password"] == ("***", place)


@pytest.mark.parametrize("name", ["namespace", "database"])
def test_names_are_of_letters_digits_and_dashes(name: str) -> None:
    for good in ("a", "My-own_1", "x" * 64):
        assert getattr(read_settings({"engine": "surreal", name: good}, {}), name) == good
    for bad in ("", "a b", "a`b", "é", "a\n", "x" * 65):
        wrong = error({}, engine="surreal", **{name: bad})
        assert isinstance(wrong, InvalidInput)
        assert wrong.facts["argument"] == f"--{name}"


@pytest.mark.parametrize("suffix", ["user", "history", "0" * 31 + "f"])
def test_a_database_is_not_named_like_a_part_of_another(suffix: str) -> None:
    refused = error({}, engine="surreal", database=f"shop_{suffix}")
    assert "'shop'" in refused.message
    assert read_settings({"engine": "surreal", "namespace": f"shop_{suffix}"}, {}).database == "default"


def test_a_name_that_sqlite_would_not_heed_is_refused_unless_sqlite_is_what_was_said() -> None:
    assert read_settings({}, {"EVERKEPT_NAMESPACE": "memory"}).namespace == "memory"
    refused = error({"EVERKEPT_NAMESPACE": "other", "MEMORY_DEPLOYMENT_MODE": "embedded-file"})
    assert isinstance(refused, Refused)
    assert refused.facts["allowed"] == ["memory"]
    assert read_settings({"engine": "sqlite"}, {"EVERKEPT_DATABASE": "other"}).engine == "sqlite"
    assert read_settings({}, {"EVERKEPT_DATABASE": "other", "MEMORY_REMOTE_URL": "ws://a"}).database


def test_a_file_with_certificates_must_be_there(tmp_path: Path) -> None:
    flags = {"database_url": "wss://a", "database_ca": tmp_path / "ca.pem"}
    assert str(tmp_path / "ca.pem") in error({}, **flags).message
    (tmp_path / "ca.pem").touch()
    assert read_settings(flags, {}).database_ca == tmp_path / "ca.pem"


def test_a_relative_file_with_certificates_is_known_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    environment = {"EVERKEPT_DATABASE_URL": "wss://a", "EVERKEPT_DATABASE_CA": "ca.pem"}
    assert read_settings({}, environment).database_ca == Path.cwd() / "ca.pem"


@pytest.mark.parametrize(
    ("address", "is_warned_of"),
    [
        ("ws://db.example", True),
        ("http://10.0.0.1:8000", True),
        ("wss://db.example", False),
        ("https://db.example", False),
        ("ws://localhost:8000", False),
    ],
)
def test_a_password_on_an_open_wire_is_warned_of(address: str, is_warned_of: bool) -> None:
    told = list_warnings(read_settings({"database_url": address}, SIGNED_IN))
    assert [address in each and "unencrypted" in each for each in told] == [True] * is_warned_of
    assert list_warnings(read_settings({"database_url": address}, {})) == ()


def test_certificates_for_an_open_wire_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    settings = read_settings({"database_url": "ws://localhost", "database_ca": tmp_path / "ca.pem"}, {})
    (told,) = list_warnings(settings)
    assert "database_ca" in told
    assert list_warnings(replace(settings, database_url="wss://localhost")) == ()


def test_the_embedded_engine_is_told_to_keep_its_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURREAL_SYNC_DATA", "false")
    keep_surreal_commits()
    assert os.environ["SURREAL_SYNC_DATA"] == "false"
    monkeypatch.delenv("SURREAL_SYNC_DATA")
    keep_surreal_commits()
    assert os.environ["SURREAL_SYNC_DATA"] == "true"


def test_another_process_is_led_to_the_same_engine_by_flags() -> None:
    flags = {"database_url": "ws://db.example", "database_user": "root"}
    environment = {"EVERKEPT_DATABASE_PASSWORD": "hunter2"}
    server = ["--engine", "surreal", "--database-url", "ws://db.example", "--database-user", "root"]
    assert build_engine_flags(read_settings(flags, environment)) == server
    assert build_engine_flags(read_settings({"engine": "surreal", "database_user": "x"}, {})) == server[:2]
    assert build_engine_flags(read_settings({}, environment)) == []


def test_the_files_of_an_engine_lie_in_the_data_folder(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path, "deployment_mode": "local-server"}, {})
    assert get_surreal_folder(settings) == tmp_path / "surreal"
    assert get_standby_folder(settings).parent == tmp_path / "standby"


ADDRESSES = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["ws", "wss"]),
    st.sampled_from(["a.example", "b.example", "127.0.0.1", "[::2]"]),
    st.sampled_from([":80", ":443", ":8000"]),
    st.sampled_from(["", "/one"]),
)
PLACES = st.tuples(ADDRESSES, st.sampled_from(["m", "n"]), st.sampled_from(["m", "n", "mn"]))


@given(one=PLACES, other=PLACES)
def test_no_two_databases_share_what_stands_in_for_them(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    def folder(address: str, namespace: str, database: str) -> Path:
        settings = Settings(Path("data"), namespace=namespace, database=database)
        return get_standby_folder(replace(settings, database_url=address))

    def database(place: tuple[str, str, str]) -> tuple[str, ...]:
        return (place[0].partition("://")[2], *place[1:])

    assert (folder(*one) == folder(*other)) == (database(one) == database(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ws://a", "http://A:80/"),
        ("wss://a", "https://a:443/rpc"),
        ("ws://a:8000", "wss://a:8000/rpc/"),
        ("ws://127.0.0.1:8000", "ws://localhost:8000"),
        ("ws://127.0.0.1:8000", "ws://[::1]:8000"),
    ],
)
def test_an_address_may_be_written_otherwise_and_means_the_same_database(one: str, other: str) -> None:
    folders = [get_standby_folder(read_settings({"database_url": each}, {})) for each in (one, other)]
    assert folders[0] == folders[1]
