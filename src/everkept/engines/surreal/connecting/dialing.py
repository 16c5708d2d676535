"""Reaching a SurrealDB server: the websocket, its certificate, and our name there.

Importing this costs half a second, with all that it needs.
"""

import logging
import ssl
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from everkept.engines.surreal.connecting import wire
from everkept.engines.surreal.connecting.addresses import Address, Credentials
from everkept.engines.surreal.connecting.failures import (
    is_wrong_login,
    message_of,
    opening,
    outcomes,
)
from everkept.engines.surreal.connecting.link import LARGEST, LEAVING, Link
from everkept.errors import EverkeptError, InvalidInput, Refused, StoreAway

SUBPROTOCOL = "cbor"
IS_RUNNING = "Is it running, and the way to it open?"
_FAILED = 500  # and above: the server, or what stands before it, cannot answer now
_LATER = (408, 425, 429)
# Its frames, a password among them, would be in a log of everything.
_SILENT = logging.Logger("everkept.silent", logging.CRITICAL + 1)


class _Direct(connect):
    """Credentials go to the address that was given, and nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def trust(address: Address, ca: Path | None) -> ssl.SSLContext | None:
    """What a certificate is checked by: the file of `ca`, or what this system trusts."""
    if not address.is_secure:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificates in {ca} cannot be read ({error.strerror or error}).",
            hint="It must be a file in PEM form.",
        ) from error


async def dial(address: Address, context: ssl.SSLContext | None) -> Link:
    try:
        socket = await _Direct(
            address.url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            ssl=context,
            proxy=None,
            compression=None,
            max_size=LARGEST,
            open_timeout=None,
            close_timeout=LEAVING,
            logger=_SILENT,
        )
    except InvalidStatus as error:
        raise _answered(address, error.response.status_code) from None
    except ssl.SSLCertVerificationError as error:
        raise Refused(
            f"The certificate of SurrealDB at {address.shown} is not trusted "
            f"({error.verify_message}).",
            hint="A file with the certificates to trust can be given in the settings.",
        ) from None
    except (OSError, EOFError, InvalidHandshake) as error:
        raise _unreached(address, error) from error
    return Link(await _agreed(address, socket), address.shown)


async def sign_in(link: Link, address: Address, namespace: str, credentials: Credentials) -> None:
    """As a user of the root; where there is none of that name and password, of the namespace."""
    if not credentials.user:
        return
    login = {"user": credentials.user, "pass": credentials.password}
    for level in (login, {"ns": namespace, **login}):
        error = (await link.ask("signin", [level])).get("error")
        if not error:
            return
        message = message_of(error)
        if not is_wrong_login(message):
            raise StoreAway(
                f"SurrealDB at {address.shown} cannot let anybody in ({opening(message)})."
            )
    raise Refused(
        f'SurrealDB at {address.shown} does not know the user "{credentials.user}", or the '
        "password is wrong.",
        hint="Check both in the settings.",
    )


async def dialect(link: Link) -> tuple[bool, str]:
    """Whether it is that of version 3, and the version as the server tells it."""
    probed = await link.ask("query", [wire.PROBE, {}])
    if probed.get("error"):
        outcomes(probed)
    told = (await link.ask("version", [])).get("result")
    return wire.is_modern(probed), told.removeprefix("surrealdb-") if isinstance(told, str) else ""


async def _agreed(address: Address, socket: ClientConnection) -> ClientConnection:
    if socket.subprotocol != SUBPROTOCOL:
        socket.transport.abort()
        await socket.wait_closed()
        raise Refused(
            f"{address.shown} does not speak the protocol of SurrealDB 2 or 3.",
            hint="Check the address, and the version of the server.",
        )
    return socket


def _answered(address: Address, status: int) -> EverkeptError:
    """For what is no websocket."""
    if status >= _FAILED or status in _LATER:
        return StoreAway(
            f"SurrealDB at {address.shown} is not ready (status {status}).", hint=IS_RUNNING
        )
    return Refused(
        f"At {address.shown} is no SurrealDB (status {status}).", hint="Check the address."
    )


def _unreached(address: Address, error: Exception) -> StoreAway:
    why = error.strerror if isinstance(error, OSError) and error.strerror else "no handshake"
    return StoreAway(f"SurrealDB at {address.shown} cannot be reached ({why}).", hint=IS_RUNNING)
