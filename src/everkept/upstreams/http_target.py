"""A server over HTTP: its address, its proxy, and the headers of its requests."""

import logging
import ssl
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import httpx2

from everkept.core.mcp import JSON, STATELESS_VERSION, UpstreamEndpoint
from everkept.core.parameter_headers import ParameterHeader, encode_value, format_argument, parse_declared_headers
from everkept.core.text import is_loopback
from everkept.errors import InvalidInput
from everkept.upstreams.link import build_setup_error, fill_variables
from everkept.values import Value, field

DEFAULT_PORTS = {"http": 80, "https": 443}
PROXY_SCHEMES = ("http", "https")
IDLE_SECONDS = 3.0  # servers close a connection after 5 s, and it must not be used at that moment


class HttpTarget(Value):
    """A server that is ready to use. `shown` is for messages; URL, headers and proxy may hold secrets."""

    upstream: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    shown: str
    proxy: str | None = field(repr=False)
    certificates: str | None  # a file to trust instead of the system's certificates


def build_target(endpoint: UpstreamEndpoint, environment: Mapping[str, str], upstream: str) -> HttpTarget:
    """Build the target. Raise UpstreamUnavailable if the URL or a header is unusable."""
    parts = _split_url(endpoint.url, upstream)
    headers = fill_variables(endpoint.headers, environment, upstream)
    for name, value in headers.items():
        # A secret read from a file often ends with a line break.
        headers[name] = value.strip()
        if not (headers[name].isascii() and headers[name].isprintable()):
            reason = f"cannot be sent the header {name}: its value contains characters that a header cannot have."
            raise build_setup_error(upstream, reason, "Use only printable ASCII characters.")
    if parts.username is not None and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = _format_basic_auth(parts.username, parts.password or "")
    place = parts.netloc.rpartition("@")[2]
    proxy = find_proxy(parts.scheme, parts.hostname or "", parts.port, environment)
    return HttpTarget(
        upstream=upstream,
        url=urlunsplit(parts._replace(netloc=place, fragment="")),
        headers=headers,
        shown=place if proxy is None else f"{place} (through the proxy {_get_proxy_host(proxy)})",
        proxy=proxy,
        certificates=environment.get("SSL_CERT_FILE") or None,
    )


def _split_url(url: str, upstream: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        is_usable = parts.scheme in DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
        httpx2.URL(url.strip())  # stricter than urlsplit
    except (ValueError, httpx2.InvalidURL):
        is_usable, parts = False, urlsplit("")
    if not is_usable:
        raise build_setup_error(upstream, "has an invalid `url`.", "Write it like https://example.org/mcp.")
    return parts


def _get_proxy_host(proxy: str) -> str:
    return proxy.partition("://")[2].rpartition("@")[2].partition("/")[0]


def _format_basic_auth(user: str, password: str) -> str:
    # In a header it stays out of the addresses that libraries log.
    pair = f"{unquote(user)}:{unquote(password)}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def find_proxy(scheme: str, host: str, port: int | None, environment: Mapping[str, str]) -> str | None:
    """Return the proxy named in the usual variables, or None. This machine is never reached through a proxy."""
    if is_loopback(host) or _is_excepted(host, port or DEFAULT_PORTS[scheme], _find_variable("no_proxy", environment)):
        return None
    proxy = _find_variable(f"{scheme}_proxy", environment) or _find_variable("all_proxy", environment)
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _find_variable(name: str, environment: Mapping[str, str]) -> str | None:
    return environment.get(name) or environment.get(name.upper()) or None


def _is_excepted(host: str, port: int, exceptions: str | None) -> bool:
    return any(_is_match(entry.strip().lower(), host.lower(), port) for entry in (exceptions or "").split(","))


def _is_match(entry: str, host: str, port: int) -> bool:
    if not entry or entry == "*":
        return entry == "*"
    name, separator, digits = entry.rpartition(":")
    if separator and digits.isdecimal() and ":" not in name.strip("[]"):
        return int(digits) == port and _is_match(name, host, port)
    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name = entry.removeprefix("*").removeprefix(".")
        return host == name or host.endswith(f".{name}")


def build_transport(target: HttpTarget) -> httpx2.AsyncHTTPTransport:
    """Build the transport. Raise UpstreamUnavailable for unusable certificates or an unusable proxy."""
    return httpx2.AsyncHTTPTransport(
        verify=_build_tls_context(target),
        proxy=_build_proxy(target),
        # Unlimited, because a call must not wait for another one to end.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS),
        trust_env=False,
    )


def _build_tls_context(target: HttpTarget) -> ssl.SSLContext:
    if target.certificates is None:
        return httpx2.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=target.certificates)
    except OSError as error:
        reason = f"SSL_CERT_FILE is {target.certificates}, which is unusable ({error.strerror or error})"
        hint = "Set it to a file of certificates in PEM format."
        raise build_setup_error(target.upstream, f"cannot be reached: {reason}.", hint) from error


def _build_proxy(target: HttpTarget) -> httpx2.Proxy | None:
    if target.proxy is None:
        return None
    wrong = "is not a valid URL"
    try:
        proxy = httpx2.Proxy(target.proxy)
        if proxy.url.scheme in PROXY_SCHEMES:
            return proxy
        wrong = f"uses {proxy.url.scheme}, which is not supported"
    except (ValueError, httpx2.InvalidURL):
        pass
    hint = "Correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or add the host to NO_PROXY."
    raise build_setup_error(target.upstream, f"cannot be reached: the proxy in the environment {wrong}.", hint)


VERSION_HEADER = "mcp-protocol-version"

_NAME_PARAMETERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}  # parameter with the name, by method

log = logging.getLogger(__name__)


class StatelessHeaders:
    """The arguments of tools that a server wants in headers, known after it has listed its tools."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._wanted: dict[str, tuple[ParameterHeader, ...]] = {}  # by tool

    def build_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Build the headers of a request. Raise InvalidInput for values that no header can hold."""
        headers = {VERSION_HEADER: STATELESS_VERSION, "mcp-method": method}
        named = params.get(_NAME_PARAMETERS.get(method, ""))
        if not isinstance(named, str):
            return headers
        try:
            headers["mcp-name"] = encode_value(named)
            for header in self._wanted.get(named, ()) if method == "tools/call" else ():
                if (value := format_argument(params.get("arguments"), header.path)) is not None:
                    headers[header.name] = value
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"Cannot send the arguments: {self._upstream} requires one of them in a header, "
                "but it contains an unpaired surrogate (invalid Unicode).",
                hint="Remove that character.",
            ) from error
        return headers

    def learn(self, listing: JSON) -> JSON:
        """Read a page of tools/list. Return it without tools with invalid header names, which must not be used."""
        listed: Any = listing.get("tools")
        if not isinstance(listed, list):
            return listing
        kept = [tool for tool in cast(list[Any], listed) if self._is_usable(tool)]
        return listing if len(kept) == len(cast(list[Any], listed)) else listing | {"tools": kept}

    def _is_usable(self, tool: Any) -> bool:
        described = cast(JSON, tool) if isinstance(tool, dict) else {}
        name = described.get("name")
        if not isinstance(name, str):
            return True
        self._wanted.pop(name, None)
        try:
            self._wanted[name] = parse_declared_headers(described.get("inputSchema"))
        except ValueError as error:
            log.warning("%s: skipped tool %s: %s", self._upstream, name, error)
            return False
        return True
