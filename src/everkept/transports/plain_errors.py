"""What accounts are told of failures that are the server's: nothing of where it keeps things."""

import logging

from everkept.core.accounts import Account
from everkept.errors import (
    EverkeptError,
    ModelUnavailable,
    QueryTimeout,
    StorageFull,
    StoreAway,
    StoreBusy,
    StoreTooNew,
    Unavailable,
)

HINT = "Whoever runs the server finds the reason in its log."
SENTENCES = {
    StoreBusy.code: "The memory is busy.",
    StoreAway.code: "The memory cannot be reached at the moment.",
    QueryTimeout.code: "The memory took too long to answer.",
    StorageFull.code: "The server has no room for more.",
    StoreTooNew.code: "This server is too old for the memory that it is to use.",
    ModelUnavailable.code: "Searching by meaning does not work at the moment.",
}
ANY_OTHER = "The server cannot do this at the moment."

log = logging.getLogger(__name__)


def told_to(account: Account | None, error: EverkeptError) -> EverkeptError:
    """The error as whoever called may know it: the owner's is whole.

    Names of machines, addresses and paths stand in the errors of what is outside alone; the code
    stays, and what it says about trying again.
    """
    if account is None or not isinstance(error, Unavailable):
        return error
    log.warning("a call of %s failed: %s", account.name, error)
    return plain(error)


def plain(error: EverkeptError) -> EverkeptError:
    """The same without a word of where the server keeps things."""
    told = Unavailable(SENTENCES.get(error.code, ANY_OTHER), hint=HINT)
    told.code, told.degraded = error.code, error.degraded
    told.retry_possible = error.retry_possible
    return told
