"""Proxies in front of the server, and the addresses of clients that they report."""

import ipaddress
from collections.abc import Mapping

from everkept.errors import InvalidInput
from everkept.transports.http_exchange import Message, get_client_address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_FOR = "x-forwarded-for"
FORWARDED_KEY = "everkept.forwarded"  # in a scope: a trusted proxy forwarded the request
MAX_FORWARDED = 20  # proxies in a row


class TrustedProxies:
    """Proxies whose forwarded addresses are trusted."""

    def __init__(self, networks: tuple[Network, ...] = ()) -> None:
        self._networks = networks

    @classmethod
    def from_text(cls, text: str) -> "TrustedProxies":
        """Parse addresses or networks, separated by commas. Raise InvalidInput for others."""
        parts = [part.strip() for part in text.split(",")]
        return cls(tuple(_parse_network(part) for part in parts if part))

    def is_trusted(self, address: str) -> bool:
        parsed = parse_ip_address(address) if self._networks else None
        return parsed is not None and self._contains(parsed)

    def set_client_address(self, scope: Message, headers: Mapping[str, str]) -> None:
        """Set the address of the client that the first trusted proxy saw.

        Each proxy appends the address of its client, so the last address that is not a proxy's is the client's. Earlier
        ones came with the request and may be forged.
        """
        if not self.is_trusted(get_client_address(scope)):
            return
        scope[FORWARDED_KEY] = True
        for part in reversed(_list_forwarded(scope, headers)):
            told = _parse_forwarded(part)
            if told is None:
                return
            scope["client"] = (str(told), 0)
            if not self._contains(told):
                return

    def _contains(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


NO_PROXIES = TrustedProxies()


def parse_ip_address(text: str) -> Address | None:
    """Parse an address. An IPv4 address in IPv6 form is the same machine."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _list_forwarded(scope: Message, headers: Mapping[str, str]) -> list[str]:
    """Return the addresses of all headers, because a proxy may add a header instead of extending the last one."""
    if FORWARDED_FOR not in headers:
        return []
    name = FORWARDED_FOR.encode()
    texts = (value.decode("latin-1") for key, value in scope["headers"] if key == name)
    return [part.strip() for text in texts for part in text.split(",")][-MAX_FORWARDED:]


def _parse_forwarded(text: str) -> Address | None:
    """Return the address of an entry, without its zone. Some proxies add a port, and brackets to IPv6."""
    text = text.partition("%")[0]
    if text.startswith("["):
        return parse_ip_address(text[1:].partition("]")[0])
    return parse_ip_address(text.partition(":")[0] if text.count(":") == 1 else text)


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidInput(
            f"trusted_proxies names {text!r}, which is not an address or network.",
            hint="Use, for example, 10.0.0.5 or 10.0.0.0/24, separated by commas.",
            argument="trusted_proxies",
            value=text,
        ) from None
