"""Where the HTTP server listens."""

import ipaddress
import socket

from everkept.errors import InvalidInput, Unavailable


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise InvalidInput(
            f"There is no port {port}.", hint="0 to 65535.", argument="port", value=port
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(
            f"Cannot listen on {host!r}, port {port}: {error}.", argument="host", value=host
        ) from None
    try:
        listening = socket.create_server((str(address[0]), int(address[1])), family=family)
        # Accepted connections inherit it. Without, an answer in two pieces waits 40 ms for the
        # client's acknowledgement of the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}, port {port}: {error.strerror}.",
            hint="--port chooses another port; 0 takes any that is free.",
        ) from error
