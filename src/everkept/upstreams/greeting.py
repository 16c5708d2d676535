"""The first words to another server: they find out which era of the protocol it speaks."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from everkept import __version__
from everkept.core.protocol import HANDSHAKE_VERSIONS, META, STATELESS_VERSION
from everkept.core.upstreams import GATEWAY_CLIENT, JSON
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.values import Value

_CLIENT = {"name": GATEWAY_CLIENT, "version": __version__}

Ask = Callable[[str, JSON], Awaitable[JSON]]
Notify = Callable[[str, JSON], None]

ACCEPTED = ("2024-10-07", *HANDSHAKE_VERSIONS)  # old servers answer with the first


class Greeting(Value):
    """What a server said of itself."""

    is_stateless: bool
    tells_of_changes: bool  # of its tools


def stateless_meta() -> JSON:
    """What every request of the stateless era says in `_meta`."""
    return {
        META + "protocolVersion": STATELESS_VERSION,
        META + "clientCapabilities": {},
        META + "clientInfo": _CLIENT,
    }


async def greet(upstream: str, ask: Ask, notify: Notify) -> Greeting:
    """Shakes hands, and where the server refuses asks it in the way that needs none."""
    hello = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": {},
        "clientInfo": _CLIENT,
    }
    try:
        answer = await ask("initialize", hello)
    except UpstreamError as refused:
        return await _discovered(upstream, ask, refused)
    version = answer.get("protocolVersion")
    if version not in ACCEPTED:
        raise _unknown_version(upstream, str(version))
    notify("notifications/initialized", {})
    return Greeting(is_stateless=False, tells_of_changes=tells(answer))


async def _discovered(upstream: str, ask: Ask, refused: UpstreamError) -> Greeting:
    try:
        answer = await ask("server/discover", {"_meta": stateless_meta()})
    except UpstreamError:
        # It speaks the older way: what it said to the handshake is what is wrong.
        raise UpstreamUnavailable(
            upstream, f"refused to be greeted: {refused.message}"
        ) from refused
    offered = answer.get("supportedVersions")
    versions = cast(list[Any], offered) if isinstance(offered, list) else []
    if STATELESS_VERSION not in versions:
        raise _unknown_version(upstream, ", ".join(map(str, versions)))
    return Greeting(is_stateless=True, tells_of_changes=tells(answer))


def tells(answer: JSON) -> bool:
    capabilities = answer.get("capabilities")
    tools = cast(JSON, capabilities).get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and cast(JSON, tools).get("listChanged") is True


def _unknown_version(upstream: str, versions: str) -> UpstreamUnavailable:
    known = ", ".join((*ACCEPTED, STATELESS_VERSION))
    return UpstreamUnavailable(
        upstream,
        f'speaks version "{versions}" of the protocol, and Everkept speaks {known}.',
        hint="Another version of the one or the other will do.",
        retry_possible=False,
    )
