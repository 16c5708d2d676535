"""What SurrealDB says where it failed: both versions, in their own words."""

import sys

import pytest

from everkept.engines.surreal.connection import (
    AlreadyExists,
    DiskFailure,
    TransactionThrown,
    WriteContention,
    extract_reason,
    parse_results,
    translate_error,
)
from everkept.errors import InvalidInput, QueryTimeout, Refused, StorageFull, StoreUnreachable

SAID = {
    "An error occurred: stale": TransactionThrown,
    "The query was not executed due to a failed transaction. Failed to commit transaction due to a "
    "read or write conflict. This transaction can be retried": WriteContention,
    "Cannot COMMIT: Transaction conflict: Write conflict, retry the transaction.": WriteContention,
    "Database record `a:2` already exists": AlreadyExists,
    "Database index `u` already contains 1, with record `b:1`": AlreadyExists,
    "The query was not executed because it exceeded the timeout: 100ms": QueryTimeout,
    "There was a problem with a transaction: No space left on device (os error 28)": StorageFull,
    "Log error: IO error: kind=other error, message=fsync failed": DiskFailure,
    "IAM error: Not enough permissions to perform this action": Refused,
    "The session has expired": StoreUnreachable,
    "Serialization error: to be serialized string contained a null byte": InvalidInput,
    "Found 'this transaction can be retried' for field `x`, but expected a int": RuntimeError,
}


@pytest.mark.parametrize(("message", "kind"), SAID.items(), ids=[m[:40] for m in SAID])
def test_a_message_becomes_the_error_that_it_means(message: str, kind: type[Exception]) -> None:
    assert type(translate_error(message)) is kind


def test_a_failure_tells_the_number_of_the_statement_and_none_of_its_values() -> None:
    told = str(translate_error("Found 'my secret' for field `x`, with record `a:9`", 3))
    assert "statement 3" in told
    assert "secret" not in told
    assert extract_reason("Couldn't coerce") == "Couldn"


def test_what_failed_comes_before_what_was_only_beside_it() -> None:
    beside = "The query was not executed due to a failed transaction"
    statements = [
        {"status": "OK", "result": None},
        {"status": "ERR", "result": beside},
        {"status": "ERR", "result": "An error occurred: stale"},
        {"status": "ERR", "result": "Cannot COMMIT: the transaction was aborted due to a prior error"},
    ]
    with pytest.raises(TransactionThrown, match=r"^stale$"):
        parse_results({"result": statements})
    with pytest.raises(RuntimeError):
        parse_results({"result": statements[:2]})


def test_numbers_that_mean_something_else_on_this_system_are_no_full_disk() -> None:
    others = {
        "linux": "Directory not empty (os error 39)",
        "darwin": "Protocol not supported (os error 112)",
        "win32": "Out of paper (os error 28)",
    }
    assert type(translate_error(f"IO error: {others[sys.platform]}")) is DiskFailure
    assert type(translate_error("There is not enough space on the disk. (os error 1)")) is StorageFull
