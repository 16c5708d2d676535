"""Reaching a PostgreSQL server: every parameter is ours, and none comes from the environment."""

import logging
import os
import ssl
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from everkept.engines.postgres.addresses import Address, Credentials
from everkept.engines.postgres.failures import unreached
from everkept.errors import InvalidInput, Refused

Connection = psycopg.Connection[tuple[Any, ...]]

NOWHERE = str(Path(os.devnull) / "none")  # a file that is not there: libpq would look at home
# Where a system keeps what it trusts, should Python not know; libpq wants one file.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
ALIVE = {  # a connection that a firewall has forgotten is noticed within a minute
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


class Dialer:
    """One attempt per call. Shows the password nowhere: not in a picture of itself either."""

    def __init__(
        self,
        address: Address,
        credentials: Credentials | None,
        ca: Path | None,
        connect_limit: float,
    ) -> None:
        """Raises InvalidInput where nobody can be let in by what is given."""
        # What it warns of is an error that we tell; by itself it would print it.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        given = credentials or Credentials("")
        self._address = address
        self._user = given.user or address.user
        self._password = given.password
        if not self._user:
            raise InvalidInput(
                f"Nobody is named who could be let in at {address.shown}.",
                hint="Set database_user to a role of that PostgreSQL server.",
            )
        known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
        ours = {
            **_defaults(),
            **ALIVE,
            **trust(address, ca),
            "host": address.host,
            "port": str(address.port),
            "dbname": address.database,
            "connect_timeout": str(max(2, round(connect_limit))),  # libpq takes no less
            "client_encoding": "UTF8",
            "application_name": "everkept",
            "passfile": NOWHERE,
            "sslcertmode": "disable",
            "sslcrl": NOWHERE,
            "gssencmode": "disable",
            "require_auth": "none,password,md5,scram-sha-256",
            "min_protocol_version": "3.0",
            "max_protocol_version": "3.0",
            "tcp_user_timeout": "30000",  # milliseconds
        }
        self._parameters = {name: value for name, value in ours.items() if name in known}

    def __call__(self) -> Connection:
        """Transactions are begun and ended by whoever uses it."""
        login = {"user": self._user, "password": self._password}
        given: dict[str, Any] = {**self._parameters, **login}
        try:
            return psycopg.connect("", autocommit=True, **given)
        except psycopg.Error as error:
            # Not as the cause: its frames hold the password.
            raise unreached(self._address, self._user, error) from None


def _defaults() -> dict[str, str]:
    """What libpq would else take from the environment, as if there was none."""
    return {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword != b"service"
    }


def trust(address: Address, ca: Path | None) -> dict[str, str]:
    """How much is asked of the server's certificate, and what it is checked by."""
    mode = address.ssl_mode
    if ca is not None and mode != "disable":
        return {"sslmode": mode if mode == "verify-ca" else "verify-full", "sslrootcert": _read(ca)}
    if not mode:
        mode = "prefer" if address.is_near else "verify-full"
    if mode == "verify-ca":  # anybody can have a certificate that a system trusts
        mode = "verify-full"
    is_checked = mode.startswith("verify")
    return {"sslmode": mode, "sslrootcert": _system_roots() if is_checked else NOWHERE}


def _read(ca: Path) -> str:
    try:
        ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificates in {ca} cannot be read ({error.strerror or error}).",
            hint="It must be a file in PEM form.",
        ) from error
    return str(ca)


def _system_roots() -> str:
    """libpq's own idea of them is a folder of the machine that it was built on."""
    known = ssl.get_default_verify_paths()
    for place in (known.cafile, known.openssl_cafile, *BUNDLES):
        if place and Path(place).is_file():
            return place
    raise Refused(
        "The certificates that this system trusts are not in a file that could be found.",
        hint="Set database_ca to a file with those that PostgreSQL's is to be checked by.",
    )
