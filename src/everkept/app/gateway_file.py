"""The gateway's file: read and checked, and shown with its servers and the use of its tools."""

import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from everkept.core.mcp import Endpoint, Launch, Reach, Usage, UsageLog
from everkept.core.secrets import masked, masked_json
from everkept.core.times import now
from everkept.errors import InvalidInput
from everkept.families.gateway.model import GatewayConfig, Problem
from everkept.settings import GATEWAY, Settings, chosen_toolsets
from everkept.values import Value

LARGEST = 16 * 1024 * 1024  # bytes


class State(NamedTuple):
    """Equal as long as the file was not written."""

    written_at: int
    changed_at: int  # also where somebody has set the time of writing back
    size: int
    file: int


class Loaded(NamedTuple):
    config: GatewayConfig
    warnings: list[Problem]


def state(path: Path) -> State | None:
    """None where there is no such file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return State(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def load(path: Path) -> Loaded:
    """InvalidInput with the file, the line and every problem where it cannot be used."""
    # Hardly any installation has a gateway.
    from everkept.families.gateway.file_reader import read

    found = read(_text(path), path.parent)
    if found.config is None:
        raise _unusable(path, found.problems)
    return Loaded(found.config, found.warnings)


def clashing(path: Path, problem: Problem) -> InvalidInput:
    """The error for what only shows beside other tools."""
    return _unusable(path, [problem])


def _unusable(path: Path, problems: list[Problem]) -> InvalidInput:
    first, more = problems[0], len(problems) - 1
    rest = f" And {more} more: `everkept gateway check` shows them." if more else ""
    return InvalidInput(
        f"{path}, {first}{rest}",
        file=str(path),
        line=first.line,
        problems=[
            {"line": problem.line, "message": problem.message, "fix": problem.fix}
            for problem in problems
        ],
    )


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is no regular file.", file=str(path))
        if found.st_size > LARGEST:
            raise InvalidInput(f"{path} has more than {LARGEST:,} bytes.", file=str(path))
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidInput(
            f"There is no gateway file {path}.",
            hint="`everkept gateway init` writes a first one.",
            file=str(path),
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8: byte {error.start:,} cannot be read.", file=str(path)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"{path} cannot be read: {reason}.", file=str(path)) from None


def refuse_clashes(path: Path, config: GatewayConfig, taken: Collection[str]) -> None:
    """Raises InvalidInput for the first of them."""
    for tool in config.tools:
        if tool.name in taken:
            message = f'Everkept itself has a tool "{tool.name}".'
            fix = "Give this one another name, or serve it with `--toolsets gateway` alone."
            raise clashing(path, Problem(tool.line, message, fix))


def names_beside(settings: Settings) -> set[str]:
    """None where no gateway is served, or nothing else is."""
    chosen = chosen_toolsets(settings)
    if GATEWAY not in chosen or len(chosen) == 1:
        return set()
    from everkept.app.build import build  # a gateway alone needs none of it

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
