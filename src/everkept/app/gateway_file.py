"""The gateway's file: read and checked, with an overview of its servers and calls."""

import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from everkept.core.mcp import ToolUsage, UpstreamEndpoint, UpstreamProgram, UpstreamSettings, UsageLog
from everkept.core.secrets import mask_json, mask_text
from everkept.core.times import read_clock
from everkept.errors import InvalidInput
from everkept.families.gateway.model import FileProblem, GatewayConfig
from everkept.settings import GATEWAY, Settings, choose_toolsets
from everkept.values import Value

MAX_FILE_BYTES = 16 * 1024 * 1024


class GatewayFileState(NamedTuple):
    """The state of a file, equal until the file is written."""

    written_at: int
    changed_at: int  # changes even if a program resets the modification time
    size: int
    file: int


class LoadedGateway(NamedTuple):
    config: GatewayConfig
    warnings: list[FileProblem]


def read_state(path: Path) -> GatewayFileState | None:
    """Return the state of the file, or None if it does not exist."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return GatewayFileState(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def load(path: Path) -> LoadedGateway:
    """Read the file. Raises InvalidInput with the file, the line and every problem."""
    # Few installations have a gateway.
    from everkept.families.gateway.file_reader import parse_file

    found = parse_file(_read_text(path), path.parent)
    if found.config is None:
        raise _build_file_error(path, found.problems)
    return LoadedGateway(found.config, found.warnings)


def build_clash_error(path: Path, problem: FileProblem) -> InvalidInput:
    """Build the error for a tool name that another tool already uses."""
    return _build_file_error(path, [problem])


def _build_file_error(path: Path, problems: list[FileProblem]) -> InvalidInput:
    first, more = problems[0], len(problems) - 1
    rest = f" And {more} more." if more else ""
    return InvalidInput(
        f"{path}, {first}{rest}",
        hint="Run `everkept gateway check` to see every problem.",
        file=str(path),
        line=first.line,
        problems=[{"line": problem.line, "message": problem.message, "fix": problem.fix} for problem in problems],
    )


def _read_text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is not a regular file.", hint="Pass the path of a JSON file.", file=str(path))
        if found.st_size > MAX_FILE_BYTES:
            raise InvalidInput(
                f"{path} must have at most {MAX_FILE_BYTES:,} bytes.", file=str(path), value=found.st_size
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidInput(
            f"Gateway file {path} does not exist.", hint="Create one with `everkept gateway init`.", file=str(path)
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8: byte {error.start:,} cannot be read.", hint="Save the file as UTF-8.", file=str(path)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"Cannot read {path}: {reason}.", hint="Check the file's permissions.", file=str(path)
        ) from None


def refuse_clashes(path: Path, config: GatewayConfig, taken: Collection[str]) -> None:
    """Raise InvalidInput for the first tool name that is in use."""
    for tool in config.tools:
        if tool.name in taken:
            message = f'Everkept already has a tool "{tool.name}".'
            fix = "Choose another name, or serve only the gateway with `--toolsets gateway`."
            raise build_clash_error(path, FileProblem(tool.line, message, fix))


def list_own_names(settings: Settings) -> set[str]:
    """Return the names of Everkept's own tools, or none if only the gateway is served."""
    chosen = choose_toolsets(settings)
    if GATEWAY not in chosen or len(chosen) == 1:
        return set()
    from everkept.app.build import build_parts  # not needed if only the gateway is served

    tools = build_parts(settings, None, None, read_clock).tools
    return {name for tool in tools for name in (tool.name, *tool.aliases)}


class GatewayServer(Value):
    """An upstream. `reached` is its command without secrets, or its host."""

    name: str
    way: Literal["stdio", "http"]
    reached: str


class GatewayOverview(Value):
    """The servers and tools of a gateway file. `fault` says why the file cannot be used.

    `earlier` holds tools with counted calls that the file no longer has.
    """

    config: Path | None
    fault: str | None
    upstreams: Sequence[GatewayServer]
    tools: Sequence[ToolUsage]
    earlier: Sequence[ToolUsage] = ()


async def read_overview(path: Path | None, log: UsageLog, taken: Collection[str] = ()) -> GatewayOverview | None:
    """Read the overview without starting a server. Return None if there is neither a file nor a call.

    `taken` holds the names of the other tools that are served.
    """
    counted = await log.list_usage()
    if path is None:
        return GatewayOverview(None, None, (), counted) if counted else None
    try:
        config = load(path).config
        refuse_clashes(path, config, taken)
    except InvalidInput as error:
        return GatewayOverview(path, str(error), (), counted)
    servers = [_describe_server(upstream.reach) for upstream in config.upstreams.values()]
    now = [usage for usage in counted if _can_offer(config, usage.tool)]
    earlier = [usage for usage in counted if usage not in now]
    return GatewayOverview(path, None, servers, [*now, *_list_uncalled(config, counted)], earlier)


def find_plain_secrets(reach: UpstreamSettings) -> list[str]:
    """List the places where the file contains a secret instead of a variable."""
    way = reach.way
    named = way.env if isinstance(way, UpstreamProgram) else way.headers
    found = [name for name, value in named.items() if mask_json({name: value})[1]]
    elsewhere = " ".join(way.args) if isinstance(way, UpstreamProgram) else way.url
    where = "args" if isinstance(way, UpstreamProgram) else "url"
    return [*found, where] if mask_text(elsewhere)[1] else found


def _describe_server(reach: UpstreamSettings) -> GatewayServer:
    if isinstance(reach.way, UpstreamProgram):
        command = " ".join((reach.way.command, *reach.way.args))
        return GatewayServer(reach.name, "stdio", mask_text(command)[0])
    return GatewayServer(reach.name, "http", _format_origin(reach.way))


def _format_origin(way: UpstreamEndpoint) -> str:
    """Return scheme, host and port, since the rest of a URL may contain a key."""
    parts = urlsplit(way.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _can_offer(config: GatewayConfig, name: str) -> bool:
    """Return whether the file can offer a tool. Only servers know the tools that are passed through."""
    if any(tool.name == name for tool in config.tools):
        return True
    ways = [server.pass_through for server in config.upstreams.values() if server.pass_through]
    return any(name.startswith(way.prefix) or name in way.rename.values() for way in ways)


def _list_uncalled(config: GatewayConfig, counted: Iterable[ToolUsage]) -> list[ToolUsage]:
    known = {usage.tool for usage in counted}
    names = sorted(tool.name for tool in config.tools if tool.name not in known)
    return [ToolUsage(name, 0, 0, 0.0, 0.0, 0) for name in names]
