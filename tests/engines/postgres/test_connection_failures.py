"""What PostgreSQL says where it failed, by the codes of its manual and the words of libpq."""

import psycopg
import pytest
from psycopg import errors

from everkept.engines.postgres.connection import Address, Crowded, failure, opening, unreached
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreAway,
    StoreDamaged,
    Unavailable,
)

PLACE = "postgresql://db.example.org:5432/memory"
ADDRESS = Address("db.example.org", 5432, "memory")
MEANT: dict[type[psycopg.Error], type[Exception]] = {
    errors.AdminShutdown: StoreAway,
    errors.CrashShutdown: StoreAway,
    errors.CannotConnectNow: StoreAway,
    errors.DatabaseDropped: StoreAway,
    errors.ConnectionFailure: StoreAway,
    errors.IdleInTransactionSessionTimeout: StoreAway,
    errors.TooManyConnections: Crowded,
    errors.ReadOnlySqlTransaction: StoreAway,
    errors.QueryCanceled: QueryTimeout,
    errors.LockNotAvailable: QueryTimeout,
    errors.DiskFull: StorageFull,
    errors.OutOfMemory: Unavailable,
    errors.ProgramLimitExceeded: Unavailable,
    errors.IoError: Unavailable,
    errors.DataCorrupted: StoreDamaged,
    errors.IndexCorrupted: StoreDamaged,
    errors.InsufficientPrivilege: Refused,
    errors.CharacterNotInRepertoire: InvalidInput,
    errors.UntranslatableCharacter: InvalidInput,
    errors.SyntaxError: RuntimeError,
    errors.UniqueViolation: Conflict,
    psycopg.OperationalError: StoreAway,
}
SAID = {
    'FATAL:  password authentication failed for user "ada"': Refused,
    "fe_sendauth: no password supplied": Refused,
    'FATAL:  database "memory" does not exist': Refused,
    'FATAL:  role "ada" does not exist': Refused,
    'FATAL:  role "ada" is not permitted to log in': Refused,
    'FATAL:  permission denied for database "memory"': Refused,
    'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "ada", no encryption': Refused,
    "server does not support SSL, but SSL was required": Refused,
    "SSL error: certificate verify failed": Refused,
    'server certificate for "a" does not match host name "b"': Refused,
    "received invalid response to SSL negotiation: H": Refused,
    'definition of service "other" not found': Refused,
    "Connection refused": StoreAway,
    "FATAL:  the database system is starting up": StoreAway,
    "FATAL:  the database system is shutting down": StoreAway,
    "FATAL:  sorry, too many clients already": Crowded,
    "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attr": Crowded,
    'FATAL:  too many connections for role "ada"': Crowded,
    'FATAL:  too many connections for database "memory"': Crowded,
    "server closed the connection unexpectedly": StoreAway,
    "could not translate host name": StoreAway,
}


@pytest.mark.parametrize(("said", "meant"), MEANT.items(), ids=[e.__name__ for e in MEANT])
def test_a_code_becomes_the_error_that_it_means(
    said: type[psycopg.Error], meant: type[Exception]
) -> None:
    assert type(failure(said("my secret"), PLACE)) is meant


@pytest.mark.parametrize("group", ["08", "53", "54", "57", "58", "XX"])
def test_nothing_that_the_outside_can_do_is_taken_for_a_mistake_of_ours(group: str) -> None:
    known = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    said = [k for k in known if issubclass(k, psycopg.Error) and (k.sqlstate or "")[:2] == group]
    assert said
    for kind in said:
        assert isinstance(failure(kind("x"), PLACE), EverkeptError), kind


@pytest.mark.parametrize(("words", "meant"), SAID.items(), ids=list(SAID))
def test_words_at_the_door_become_the_error_that_they_mean(
    words: str, meant: type[EverkeptError]
) -> None:
    error = psycopg.OperationalError(f'connection to server at "x", port 5 failed: {words}')
    told = unreached(ADDRESS, "ada", error)
    assert type(told) is meant
    assert told.hint


def test_a_mistake_of_ours_tells_no_value() -> None:
    told = str(failure(errors.InvalidTextRepresentation('invalid input: "my secret"'), PLACE))
    assert "22P02" in told
    assert "secret" not in told
    assert opening("Key (name)=(my secret) exists") == "Key"
