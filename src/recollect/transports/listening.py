"""Where the HTTP server listens."""

import ipaddress
import socket

from recollect.errors import InvalidInput, Unavailable


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise InvalidInput(
            f"Cannot listen on {host!r}, port {port}: {error}.", argument="host", value=host
        ) from None
    try:
        return socket.create_server((str(address[0]), int(address[1])), family=family)
    except OverflowError as error:
        raise InvalidInput(
            f"Cannot listen on port {port}: {error}.", argument="port", value=port
        ) from None
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}, port {port}: {error.strerror}.",
            hint="--port chooses another port; 0 takes any that is free.",
        ) from error
