"""The gateway at a glance: its file, the servers behind it, how often its tools were called."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from everkept.app.build import build
from everkept.core.secrets import masked, masked_json
from everkept.core.times import now
from everkept.core.upstreams import Endpoint, Launch, Reach, Usage, UsageLog
from everkept.errors import InvalidInput
from everkept.families.gateway.model import GatewayConfig
from everkept.settings import GATEWAY, Settings, chosen_toolsets
from everkept.values import Value


def names_beside(settings: Settings) -> set[str]:
    """None where no gateway is served, or nothing else is."""
    chosen = chosen_toolsets(settings)
    if GATEWAY not in chosen or len(chosen) == 1:
        return set()
    tools = build(settings, None, None, now).tools
    return {name for tool in tools for name in (tool.name, *tool.aliases)}


class Server(Value):
    """An upstream; `reached` is its command without what looks like a secret, or its host."""

    name: str
    way: Literal["stdio", "http"]
    reached: str


class GatewayOverview(Value):
    """`fault` says why the file cannot be used; then nothing is known of its servers.

    `earlier` are tools that were called once and that the file does not speak of any more.
    """

    config: Path | None
    fault: str | None
    upstreams: Sequence[Server]
    tools: Sequence[Usage]
    earlier: Sequence[Usage] = ()


async def overview(
    path: Path | None, log: UsageLog, taken: Collection[str] = ()
) -> GatewayOverview | None:
    """None where there is neither a file nor a call. No server is started.

    `taken` are the names of the tools that these are served beside.
    """
    counted = await log.usage()
    if path is None:
        return GatewayOverview(None, None, (), counted) if counted else None
    # Hardly anybody has a gateway.
    from everkept.app.gateway_file import load, refuse_clashes

    try:
        config = load(path).config
        refuse_clashes(path, config, taken)
    except InvalidInput as error:
        return GatewayOverview(path, str(error), (), counted)
    servers = [_server(upstream.reach) for upstream in config.upstreams.values()]
    now = [usage for usage in counted if _may_offer(config, usage.tool)]
    earlier = [usage for usage in counted if usage not in now]
    return GatewayOverview(path, None, servers, [*now, *_never_called(config, counted)], earlier)


def plain_secrets(reach: Reach) -> list[str]:
    """Where the file has a secret itself, instead of the name of a variable that holds it."""
    way = reach.way
    named = way.env if isinstance(way, Launch) else way.headers
    found = [name for name, value in named.items() if masked_json({name: value})[1]]
    elsewhere = " ".join(way.args) if isinstance(way, Launch) else way.url
    where = "args" if isinstance(way, Launch) else "url"
    return [*found, where] if masked(elsewhere)[1] else found


def _server(reach: Reach) -> Server:
    if isinstance(reach.way, Launch):
        command = " ".join((reach.way.command, *reach.way.args))
        return Server(reach.name, "stdio", masked(command)[0])
    return Server(reach.name, "http", _address(reach.way))


def _address(way: Endpoint) -> str:
    """Scheme, host and port: all else may hold a key."""
    parts = urlsplit(way.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _may_offer(config: GatewayConfig, name: str) -> bool:
    """Which tools are passed through, only their servers know."""
    if any(tool.name == name for tool in config.tools):
        return True
    ways = [server.pass_through for server in config.upstreams.values() if server.pass_through]
    return any(name.startswith(way.prefix) or name in way.rename.values() for way in ways)


def _never_called(config: GatewayConfig, counted: Iterable[Usage]) -> list[Usage]:
    known = {usage.tool for usage in counted}
    names = sorted(tool.name for tool in config.tools if tool.name not in known)
    return [Usage(name, 0, 0, 0.0, 0.0, 0) for name in names]
