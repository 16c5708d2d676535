"""Where a request came from, when it came through a proxy that may say so."""

import ipaddress
from collections.abc import Mapping

from everkept.errors import InvalidInput
from everkept.transports.asgi import Message, address_in

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_FOR = "x-forwarded-for"


class Proxies:
    """Those whose word is taken; nobody else can say to be another."""

    def __init__(self, networks: tuple[Network, ...] = ()) -> None:
        self._networks = networks

    @classmethod
    def named(cls, text: str) -> "Proxies":
        """Addresses or networks, with commas; what is neither is an error."""
        parts = [part.strip() for part in text.split(",")]
        return cls(tuple(_network(part) for part in parts if part))

    def settle(self, scope: Message, headers: Mapping[str, str]) -> None:
        """From here on the scope names the machine that the proxy was asked by.

        What stands before the last address came with the request, and so may be made up.
        """
        proxy = _address(address_in(scope)) if self._networks else None
        if proxy is None or not any(proxy in network for network in self._networks):
            return
        told = _address(headers.get(FORWARDED_FOR, "").rpartition(",")[2].strip())
        if told is not None:
            scope["client"] = (str(told), 0)


NOBODY = Proxies()


def _address(text: str) -> Address | None:
    """One of IPv4 in the dress of IPv6 is the same machine."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidInput(
            f"trusted_proxies names {text!r}, which is no address and no network.",
            hint="As 10.0.0.5 or 10.0.0.0/24, several with commas.",
            argument="trusted_proxies",
            value=text,
        ) from None
