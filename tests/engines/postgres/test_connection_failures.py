"""What PostgreSQL says where it failed, by the codes of its manual and the words of libpq."""

import psycopg
import pytest
from psycopg import errors

from everkept.engines.postgres.connection import (
    Address,
    TooManyConnections,
    build_connect_error,
    extract_reason,
    translate_error,
)
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreDamaged,
    StoreUnreachable,
    Unavailable,
)

PLACE = "postgresql://db.example.org:5432/memory"
ADDRESS = Address("db.example.org", 5432, "memory")
MEANT: dict[type[psycopg.Error], type[Exception]] = {
    errors.AdminShutdown: StoreUnreachable,
    errors.CrashShutdown: StoreUnreachable,
    errors.CannotConnectNow: StoreUnreachable,
    errors.DatabaseDropped: StoreUnreachable,
    errors.ConnectionFailure: StoreUnreachable,
    errors.IdleInTransactionSessionTimeout: StoreUnreachable,
    errors.TooManyConnections: TooManyConnections,
    errors.ReadOnlySqlTransaction: StoreUnreachable,
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
    psycopg.OperationalError: StoreUnreachable,
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
    "Connection refused": StoreUnreachable,
    "FATAL:  the database system is starting up": StoreUnreachable,
    "FATAL:  the database system is shutting down": StoreUnreachable,
    "FATAL:  sorry, too many clients already": TooManyConnections,
    "FATAL:  remaining connection slots are reserved for roles with SUPERUSER": TooManyConnections,
    'FATAL:  too many connections for role "ada"': TooManyConnections,
    'FATAL:  too many connections for database "memory"': TooManyConnections,
    "server closed the connection unexpectedly": StoreUnreachable,
    "could not translate host name": StoreUnreachable,
}


@pytest.mark.parametrize(("said", "meant"), MEANT.items(), ids=[e.__name__ for e in MEANT])
def test_a_code_becomes_the_error_that_it_means(said: type[psycopg.Error], meant: type[Exception]) -> None:
    assert type(translate_error(said("my secret"), PLACE)) is meant


@pytest.mark.parametrize("group", ["08", "53", "54", "57", "58", "XX"])
def test_nothing_that_the_outside_can_do_is_taken_for_a_mistake_of_ours(group: str) -> None:
    known = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    said = [k for k in known if issubclass(k, psycopg.Error) and (k.sqlstate or "")[:2] == group]
    assert said
    for kind in said:
        assert isinstance(translate_error(kind("x"), PLACE), EverkeptError), kind


@pytest.mark.parametrize(("words", "meant"), SAID.items(), ids=list(SAID))
def test_words_at_the_door_become_the_error_that_they_mean(words: str, meant: type[EverkeptError]) -> None:
    error = psycopg.OperationalError(f'connection to server at "x", port 5 failed: {words}')
    told = build_connect_error(ADDRESS, "ada", error)
    assert type(told) is meant
    assert told.hint


def test_bytes_that_are_no_answer_are_a_lost_connection() -> None:
    error = psycopg.DatabaseError('message contents do not agree with length in message type "D"')
    assert isinstance(translate_error(error, "here"), StoreUnreachable)


def test_a_mistake_of_ours_tells_no_value() -> None:
    told = str(translate_error(errors.InvalidTextRepresentation('invalid input: "my secret"'), PLACE))
    assert "22P02" in told
    assert "secret" not in told
    assert extract_reason("Key (name)=(my secret) exists") == "Key"
