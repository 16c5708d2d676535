"""What every way to another server has in common: the link, its greeting, and our variables."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

from everkept import __version__
from everkept.core.protocol import HANDSHAKE_VERSIONS, META, STATELESS_VERSION
from everkept.core.sessions import Report
from everkept.core.upstreams import GATEWAY_CLIENT, JSON, VARIABLE, Launch, Reach
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.values import Value

NOT_KNOWN = "Whether the call took effect is not known, so it was not repeated."


class LinkEnded(Exception):
    """The connection is gone: the message says why, as the end of a sentence about the server."""


class NotSent(LinkEnded):
    """It was gone before the server took the request: on a new connection it may be sent again."""


class Link(Protocol):
    """An open connection to a server that has been greeted, in the era that it speaks.

    Requests may run side by side, from any task. One that is cancelled is cancelled there too.
    """

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        """The result as it came. UpstreamError for an answer that is an error, LinkEnded where no
        answer will come. Waits as long as it takes: the caller knows how patient it is."""
        ...

    async def probe(self) -> None:
        """Returns once the server has answered anything at all; LinkEnded like above."""
        ...

    async def ended(self) -> str:
        """Waits until the connection is gone, and says why."""
        ...


# Opened and closed by one task: Link for a server, our environment, and whom to tell when the
# server says that its tools have changed. Raises UpstreamUnavailable where it cannot be reached;
# the caller bounds the time: a note on its CancelledError is what the server has written so far.
Connect = Callable[
    [Reach, Mapping[str, str], Callable[[], None]], AbstractAsyncContextManager[Link]
]

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


SHORTEST_SECRET = 6  # characters; what is shorter is part of many a word
_MASK = "[masked: variable]"

Hide = Callable[[str], str]


def filled(
    values: Mapping[str, str], environment: Mapping[str, str], upstream: str
) -> dict[str, str]:
    """The values with each `${NAME}` replaced. One that is not set is an UpstreamUnavailable: a
    server would take an empty secret for a wrong one."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environment:
            raise UpstreamUnavailable(
                upstream,
                f"needs the variable {name}, which is not set.",
                hint=f"Set {name} in the environment of Everkept, and start it again.",
                retry_possible=False,
            )
        return environment[name]

    return {key: VARIABLE.sub(value_of, value) for key, value in values.items()}


def hiding(reach: Reach, environment: Mapping[str, str]) -> Hide:
    """What masks in a server's words the values that were filled in for it, and whatever else
    looks like a secret. A variable that tells of a place is none."""
    values = reach.way.env if isinstance(reach.way, Launch) else reach.way.headers
    named = {name for value in values.values() for name in VARIABLE.findall(value)}
    known = {environment[name] for name in named - _PLACES if name in environment}
    # The longest first: another may be part of it.
    secrets = sorted((s for s in known if len(s) >= SHORTEST_SECRET), key=len, reverse=True)

    def hidden(text: str) -> str:
        from everkept.core.secrets import masked

        for secret in secrets:
            text = text.replace(secret, _MASK)
        return masked(text)[0]

    return hidden


_PLACES = frozenset(
    {"APPDATA", "HOME", "LOCALAPPDATA", "LOGNAME", "PATH", "PWD", "TEMP", "TMPDIR", "USER"}
    | {"USERNAME", "USERPROFILE"}
)
