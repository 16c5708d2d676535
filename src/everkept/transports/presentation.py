"""What clients are shown: lists of tools and resources, and errors without server details."""

import logging
from typing import TYPE_CHECKING

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
from everkept.tools.tool import Tool
from everkept.transports.connection import JSON

if TYPE_CHECKING:  # loaded when they are asked for
    from everkept.app.resources import ResourceInfo


def described(tool: Tool) -> JSON:
    """A tool as tools/list shows it."""
    if tool.listing is not None:
        return tool.listing
    listed: JSON = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }
    return listed if tool.output_schema is None else listed | {"outputSchema": tool.output_schema}


def resource(info: "ResourceInfo", key: str) -> JSON:
    """A resource, or a template of several: `key` says which of them by its address."""
    return {
        key: info.uri,
        "name": info.name,
        "description": info.description,
        "mimeType": info.mime_type,
    }


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
