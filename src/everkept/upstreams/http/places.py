"""Where a server over HTTP is, and the way there: address, credentials, proxy, certificates."""

from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from everkept.core.upstreams import Endpoint
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.variables import filled
from everkept.values import Value, field

PORTS = {"http": 80, "https": 443}


class Target(Value):
    """A server, ready to be spoken to. `shown` is for messages; address, headers and proxy may
    hold secrets."""

    upstream: str  # its name
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    shown: str
    proxy: str | None = field(repr=False)
    certificates: str | None  # a file to trust in place of the system's


def target_of(endpoint: Endpoint, environment: Mapping[str, str], upstream: str) -> Target:
    """Raises UpstreamUnavailable where the address or a header cannot be used."""
    parts = _split(endpoint.url, upstream)
    headers = filled(endpoint.headers, environment, upstream)
    for name, value in headers.items():
        # A secret read from a file often brings a line break along.
        headers[name] = value.strip()
        if not (headers[name].isascii() and headers[name].isprintable()):
            raise UpstreamUnavailable(
                upstream,
                f"cannot be sent the header {name}: its value holds what no header can.",
                hint="Only ASCII characters that can be seen are allowed.",
                retry_possible=False,
            )
    if parts.username is not None and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = _basic(parts.username, parts.password or "")
    place = parts.netloc.rpartition("@")[2]
    proxy = proxy_for(parts.scheme, parts.hostname or "", parts.port, environment)
    return Target(
        upstream=upstream,
        url=urlunsplit(parts._replace(netloc=place, fragment="")),
        headers=headers,
        shown=place if proxy is None else f"{place} (by the proxy {_without_secrets(proxy)})",
        proxy=proxy,
        certificates=environment.get("SSL_CERT_FILE") or None,
    )


def _split(url: str, upstream: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        is_usable = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable, parts = False, urlsplit("")
    if not is_usable:
        raise UpstreamUnavailable(
            upstream,
            "has a `url` that is no address.",
            hint="Write it like https://example.org/mcp.",
            retry_possible=False,
        )
    return parts


def _without_secrets(proxy: str) -> str:
    return proxy.partition("://")[2].rpartition("@")[2].partition("/")[0]


def _basic(user: str, password: str) -> str:
    # In a header of its own it stays out of what libraries log about addresses.
    pair = f"{unquote(user)}:{unquote(password)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def proxy_for(
    scheme: str, host: str, port: int | None, environment: Mapping[str, str]
) -> str | None:
    """The proxy that the usual variables name, or None. This machine is never reached by one."""
    if _is_here(host) or _is_excepted(host, port or PORTS[scheme], _value("no_proxy", environment)):
        return None
    proxy = _value(f"{scheme}_proxy", environment) or _value("all_proxy", environment)
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _value(name: str, environment: Mapping[str, str]) -> str | None:
    return environment.get(name) or environment.get(name.upper()) or None


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_excepted(host: str, port: int, exceptions: str | None) -> bool:
    return any(
        _excepts(entry.strip().lower(), host.lower(), port)
        for entry in (exceptions or "").split(",")
    )


def _excepts(entry: str, host: str, port: int) -> bool:
    if not entry or entry == "*":
        return entry == "*"
    name, separator, digits = entry.rpartition(":")
    if separator and digits.isdecimal() and ":" not in name.strip("[]"):
        return int(digits) == port and _excepts(name, host, port)
    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name = entry.removeprefix("*").removeprefix(".")
        return host == name or host.endswith(f".{name}")
