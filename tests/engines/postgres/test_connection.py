"""Being let in: by password, by certificate, and by nothing that the environment says."""

import logging
from pathlib import Path

import pytest

from certificates import certificate
from everkept.engines.postgres.connection import Credentials, build_tls_parameters, parse_address
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.statements import Cursor
from everkept.errors import InvalidInput, Refused, StoreUnreachable
from postgres_server import Encrypted, Server, proxied

ELSEWHERE = {
    "PGHOST": "192.0.2.1",
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGUSER": "somebody",
    "PGPASSWORD": "secret",
    "PGPASSFILE": "/elsewhere",
    "PGDATABASE": "other",
    "PGOPTIONS": "-c work_mem=1",
    "PGAPPNAME": "other",
    "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "/elsewhere",
    "PGSSLNEGOTIATION": "direct",
    "PGSSLMINPROTOCOLVERSION": "TLSv1.3",
    "PGREQUIREAUTH": "gss",
    "PGCHANNELBINDING": "require",
    "PGCLIENTENCODING": "LATIN1",
    "PGTARGETSESSIONATTRS": "standby",
    "PGMINPROTOCOLVERSION": "3.2",
    "PGMAXPROTOCOLVERSION": "3.2",
    "PGCONNECT_TIMEOUT": "1000",
}


def who(cursor: Cursor) -> tuple[object, ...] | None:
    return cursor.execute(
        "SELECT current_user::text, current_database()::text, "
        "current_setting('application_name'), current_setting('client_encoding')"
    ).fetchone()


async def test_nothing_comes_from_the_environment(common: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    assert await common.database().read(who) == ("postgres", "postgres", "everkept", "UTF8")


async def test_a_service_of_the_environment_that_is_not_there_is_named(
    common: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSERVICE", "other")
    with pytest.raises(Refused, match="PGSERVICE"):
        await common.database().read(who)


async def test_the_right_password_and_certificate_let_us_in(guarded: Server, secure: Encrypted, proof: Path) -> None:
    assert await guarded.database().read(who) is not None
    assert await secure.database(ca=proof).read(who) is not None


@pytest.mark.parametrize("password", ["", "battery staple", "correct horse "])
async def test_a_wrong_password_is_refused_and_told_nowhere(
    guarded: Server, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    database = guarded.database(credentials=Credentials("postgres", password))
    with pytest.raises(Refused, match='rejected the user "postgres" or the password') as refused:
        await database.read(who)
    error = refused.value
    assert error.__cause__ is None
    if password:
        assert password not in f"{error!r} {error} {caplog.text} {database!r} {vars(database)}"


@pytest.mark.parametrize("path", ["/nowhere", "/nowhere?sslmode=disable"])
async def test_a_database_or_a_user_that_is_not_there_is_named(common: Server, path: str) -> None:
    url = f"postgresql://127.0.0.1:{common.port}"
    with pytest.raises(Refused, match='no database "nowhere"'):
        await Database(url + path, "a", credentials=Credentials("postgres")).read(who)
    with pytest.raises(Refused, match='no user "ada"'):
        await Database(f"{url}/postgres", "a", credentials=Credentials("ada")).read(who)


async def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Encrypted, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other")
    with pytest.raises(Refused, match="certificate of PostgreSQL"):
        await secure.database(ca=other).read(who)
    url = f"{secure.url}?sslmode=verify-full"  # by what the system trusts
    with pytest.raises(Refused, match="certificate of PostgreSQL"):
        await Database(url, "a", credentials=Credentials("postgres", "correct horse")).read(who)


async def test_a_certificate_for_another_host_is_refused(secure: Encrypted, guarded: Server, proof: Path) -> None:
    url = secure.url.replace("127.0.0.1", "localhost")
    with pytest.raises(Refused, match="certificate of PostgreSQL"):
        await guarded.database(url=url, ca=proof).read(who)
    within = guarded.database(url=f"{url}?sslmode=verify-ca", ca=proof)
    assert await within.read(who) is not None


async def test_what_is_to_be_encrypted_never_goes_in_plain(guarded: Server, proof: Path) -> None:
    async with proxied(guarded) as proxy:
        for url, ca in ((f"{proxy.url}?sslmode=require", None), (proxy.url, proof)):
            with pytest.raises(Refused, match="does not offer encrypted connections"):
                await guarded.database(url=url, ca=ca).read(who)
        assert proxy.passed["up"] <= 2 * 8  # the question whether it speaks TLS


async def test_a_server_that_asks_for_encryption_refuses_who_does_not_want_it(
    secure: Encrypted, guarded: Server
) -> None:
    with pytest.raises(Refused, match="only encrypted"):
        await guarded.database(url=f"{secure.url}?sslmode=disable").read(who)
    assert await guarded.database(url=f"{secure.url}?sslmode=require").read(who) is not None
    assert await guarded.database(url=secure.url).read(who) is not None


def test_by_itself_a_way_into_the_network_is_encrypted_and_checked() -> None:
    far = build_tls_parameters(parse_address("postgresql://db.example.org/a"), None)
    assert far["sslmode"] == "verify-full"
    assert Path(far["sslrootcert"]).is_file()
    system = build_tls_parameters(parse_address("postgresql://db.example.org/a?sslmode=verify-ca"), None)
    assert system == far  # anybody can have a certificate that a system trusts
    near = build_tls_parameters(parse_address("postgresql://localhost/a"), None)
    assert near["sslmode"] == "prefer"


def test_what_the_driver_thinks_of_our_errors_is_not_printed() -> None:
    logging.getLogger("psycopg").setLevel(logging.NOTSET)
    Database("postgresql://ada@127.0.0.1/a", "a")
    assert not logging.getLogger("psycopg").isEnabledFor(logging.WARNING)


def test_certificates_that_cannot_be_read_and_nobody_to_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Cannot read"):
        Database("postgresql://ada@127.0.0.1/a", "a", ca=tmp_path / "missing.pem")
    with pytest.raises(InvalidInput, match="database_user"):
        Database("postgresql://127.0.0.1/a", "a")


async def test_what_cannot_be_reached_is_away(common: Server) -> None:
    async with proxied(common) as proxy:
        proxy.refuse()
        with pytest.raises(StoreUnreachable, match="Cannot reach"):
            await proxy.database().read(who)
    with pytest.raises(StoreUnreachable, match="Cannot reach"):
        await proxy.database().read(who)
