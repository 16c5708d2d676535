"""The servers in a gateway's file: how to reach them, and which tools they pass through."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import cast
from urllib.parse import urlsplit

from everkept.core.json_text import Key
from everkept.core.mcp import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    VARIABLE,
    UpstreamEndpoint,
    UpstreamProgram,
    UpstreamSettings,
)
from everkept.families.gateway.file_values import (
    FilePlace,
    check_keys,
    format_value,
    is_list,
    is_object,
    is_text,
    parse_text,
    parse_texts,
    warn_secrets,
)
from everkept.families.gateway.model import (
    MAX_NAME_CHARACTERS,
    FileProblem,
    PassThrough,
    ToolConfig,
    UpstreamConfig,
    find_passed_name,
    is_name,
)

PASS_THROUGH_KEYS = ("prefix", "only", "hide", "rename", "trustReadOnlyHint")
NAME_RULE = f"1 to {MAX_NAME_CHARACTERS} of the characters A-Z, a-z, 0-9, `_`, `.` and `-`"


def parse_pass_through(place: FilePlace | None) -> PassThrough | None:
    """Parse which tools are passed through, and note every fault. Return None for no tools."""
    if place is None or place.value is False:
        return None
    if place.value is True:
        return PassThrough(lines={"": place.line})
    if not isinstance(place.value, dict):
        place.refuse_kind("true, or an object in { }")
        return None
    check_keys(place, PASS_THROUGH_KEYS)
    only, hide = place.get("only"), place.get("hide")
    passed = PassThrough(
        prefix=_parse_prefix(place.get("prefix")),
        only=tuple(_parse_distinct(only)) if only else None,
        hide=tuple(_parse_distinct(hide)),
        rename=_parse_rename(place.get("rename")),
        trusts_read_only_hint=_is_true(place.get("trustReadOnlyHint")),
        lines=_collect_lines(place),
    )
    _check_choices(place, passed)
    return passed


def _parse_prefix(place: FilePlace | None) -> str:
    text = parse_text(place, can_be_empty=True) or ""
    if place is not None and text and not is_name(text):
        place.refuse_kind(NAME_RULE)
    return text


def _is_true(place: FilePlace | None) -> bool:
    if place is not None and not isinstance(place.value, bool):
        place.refuse_kind("true or false")
    return place is not None and place.value is True


def _parse_distinct(place: FilePlace | None) -> list[str]:
    names = parse_texts(place)
    twice = sorted({name for name in names if names.count(name) > 1})
    if place is not None and twice:
        place.refuse(f"{place.name} has {format_value(twice[0])} twice.", "Keep one of them.")
    return names


def _parse_rename(place: FilePlace | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    renamed: dict[str, str] = {}
    for theirs, member in place.iterate_members():
        ours = parse_text(member)
        if ours is not None and not is_name(ours):
            member.refuse_kind(NAME_RULE)
        elif ours is not None:
            renamed[theirs] = ours
    return renamed


def _collect_lines(place: FilePlace) -> dict[str, int]:
    """Map each mentioned tool to its line; the line of a new name wins."""
    lines = {"": place.line}
    for key in ("only", "hide"):
        listed = place.get(key)
        items = listed.iterate_items() if listed and isinstance(listed.value, list) else ()
        lines |= {item.value: item.line for item in items if isinstance(item.value, str)}
    renamed = place.get("rename")
    if renamed and isinstance(renamed.value, dict):
        lines |= {theirs: member.line for theirs, member in renamed.iterate_members()}
    return lines


def _check_choices(place: FilePlace, passed: PassThrough) -> None:
    """Refuse contradictions between `only`, `hide` and `rename`."""
    rename, hide = place.get("rename"), place.get("hide")
    for name in passed.hide:
        if hide is not None and passed.only is not None and name in passed.only:
            hide.refuse(f"{format_value(name)} is in `hide` and in `only`.", "Keep one of them.")
    for theirs in passed.rename:
        member = rename and rename.get(theirs)
        if member is None:
            continue
        if theirs in passed.hide:
            member.refuse(f"{format_value(theirs)} is in `rename` and in `hide`.", "Keep one of them.")
        elif passed.only is not None and theirs not in passed.only:
            member.refuse(
                f"{format_value(theirs)} is in `rename`, but not in `only`.",
                "Add it to `only`, or remove the new name.",
            )


def check_clashes(
    root: FilePlace,
    tools: Sequence[ToolConfig],
    places: Mapping[str, FilePlace],
    upstreams: Mapping[str, UpstreamConfig],
) -> None:
    """Refuse duplicate names, and warn about new names for tools that also have an entry.

    All other tools that a server passes through are known only after it is asked.
    """
    described = {(tool.upstream, tool.tool): tool for tool in tools}
    offered = list(_list_named(root))
    for server, config in upstreams.items():
        if config.pass_through is not None:
            lines = _collect_passed_lines(places[server], config.pass_through)
            for theirs, line in lines.items():
                name = find_passed_name(theirs, config.pass_through)
                tool = described.get((server, theirs))
                if name is not None and tool is None:
                    offered.append((name, line))
                elif tool is not None and theirs in config.pass_through.rename:
                    message = f"The new name of {format_value(theirs)} is unused: line {tool.line} maps the tool."
                    root.notes.warnings.append(FileProblem(line, message, "Remove one of them."))
    root.notes.problems.extend(_find_clashes(offered))


def _list_named(root: FilePlace) -> Iterator[tuple[str, int]]:
    """Yield the names in `tools` with their lines, including entries with other faults."""
    tools = root.get("tools")
    for item in tools.iterate_items() if tools and isinstance(tools.value, list) else ():
        name = item.get("name") if isinstance(item.value, dict) else None
        if name is not None and is_name(name.value):
            yield name.value, name.line


def _collect_passed_lines(server: FilePlace, through: PassThrough) -> dict[str, int]:
    """Map each tool of a server that the file passes through by name to its line."""
    path: tuple[Key, ...] = (*server.path, "passThrough")
    line = server.notes.document.find_line
    only = {name: line((*path, "only", i)) for i, name in enumerate(through.only or ())}
    return only | {name: line((*path, "rename", name)) for name in through.rename}


def _find_clashes(offered: Sequence[tuple[str, int]]) -> Iterator[FileProblem]:
    first: dict[str, int] = {}
    for name, line in sorted(offered, key=lambda offer: offer[1]):
        if name in first:
            yield FileProblem(
                line,
                f"Two tools are called {format_value(name)}: here and in line {first[name]}.",
                "Give one of them another name.",
            )
        first.setdefault(name, line)


MAX_WAIT_SECONDS = 86_400

START_VALUES = {"first-use": False, "at-start": True}
LAUNCH_KEYS = ("command", "args", "env", "cwd")
ENDPOINT_KEYS = ("url", "headers")
SHARED_KEYS = ("connectTimeout", "callTimeout", "start", "passThrough")

_KEY_FIXES = {
    **dict.fromkeys(("type", "transport"), "Remove it: `command` or `url` says how to reach the server."),
    "cmd": "Did you mean `command`?",
    "timeout": "Write `connectTimeout` or `callTimeout`.",
    "disabled": "Remove it, or comment out the server.",
}
_SHELL_VARIABLE = re.compile(r"\$[A-Za-z_]\w*")
_ANY_VARIABLE = re.compile(f"{VARIABLE.pattern}|{_SHELL_VARIABLE.pattern}")
_DEFAULTED_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*(:?[-=?+])")
_LINE_BREAK = re.compile("[\r\n]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
# Set by the connection itself.
_RESERVED_HEADERS = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "last-event-id", "transfer-encoding"}
    | {"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id"}
)


def parse_server(name: str, place: FilePlace, folder: PurePath) -> UpstreamConfig | None:
    """Parse one server, and note every fault. Return None if it cannot be reached."""
    if not is_object(place):
        return None
    way = _parse_way(place, folder)
    connect_timeout = _parse_seconds(place.get("connectTimeout"), CONNECT_SECONDS)
    call_timeout = _parse_seconds(place.get("callTimeout"), CALL_SECONDS)
    starts_at_once = _parse_start(place.get("start"))
    passed = parse_pass_through(place.get("passThrough"))
    if way is None:
        return None
    reach = UpstreamSettings(name, way, connect_timeout, call_timeout, starts_at_once)
    return UpstreamConfig(reach, passed, place.line)


def _parse_way(place: FilePlace, folder: PurePath) -> UpstreamProgram | UpstreamEndpoint | None:
    command, url = place.get("command"), place.get("url")
    if url is not None and command is not None:
        url.refuse(
            f"{place.name} has both `command` and `url`.",
            "Keep `command` for a program to start, or `url` for a running server.",
        )
        return None
    _check_own_keys(place, has_command=command is not None, has_url=url is not None)
    if command is not None:
        return _parse_launch(place, command, folder)
    if url is not None:
        return _parse_endpoint(place, url)
    place.refuse(
        f"{place.name} has neither `command` nor `url`.",
        "Add `command` for a program to start, or `url` for a running server.",
    )
    return None


def _check_own_keys(place: FilePlace, *, has_command: bool, has_url: bool) -> None:
    """Refuse unknown keys, and keys that belong to the other kind of server."""
    check_keys(place, LAUNCH_KEYS + ENDPOINT_KEYS + SHARED_KEYS, _KEY_FIXES)
    foreign = {
        **(dict.fromkeys(ENDPOINT_KEYS, "url") if has_command else {}),
        **(dict.fromkeys(LAUNCH_KEYS, "command") if has_url else {}),
    }
    for key, member in place.iterate_members():
        if key in foreign:
            member.refuse(f"`{key}` requires `{foreign[key]}`, which {place.name} does not have.", "Remove it.")


def _parse_launch(place: FilePlace, command: FilePlace, folder: PurePath) -> UpstreamProgram | None:
    program = parse_text(command)
    _warn_variables(command)
    args = _parse_args(place.get("args"))
    env = _parse_env(place.get("env"))
    cwd = _parse_cwd(place.get("cwd"), folder)
    return UpstreamProgram(program, tuple(args), env, cwd) if program else None


def _parse_args(place: FilePlace | None) -> list[str]:
    if place is None or not is_list(place):
        return []
    items = [item for item in place.iterate_items() if is_text(item, can_be_empty=True)]
    for item in items:
        _warn_variables(item)
    args = [cast(str, item.value) for item in items]
    warn_secrets(place, "args", " ".join(args), _ARGS_SECRET_FIX)
    return args


def _parse_cwd(place: FilePlace | None, folder: PurePath) -> str:
    """Return the folder to start the program in; by default the folder of the file.

    The current folder may hold a stranger's program or module of the same name.
    """
    text = parse_text(place)
    if place is None or text is None:
        return str(folder)
    _warn_variables(place)
    try:
        return str(Path(folder) / Path(text).expanduser())
    except RuntimeError:
        place.refuse(f"{place.name} is {format_value(text)}, but that home folder is unknown.", "Write the full path.")
        return str(folder)


def _parse_env(place: FilePlace | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    values: dict[str, str] = {}
    for name, member in place.iterate_members():
        if not name or "=" in name or not name.isprintable():
            member.refuse(
                f"{place.name} has the invalid variable name {format_value(name)}.",
                "It must not be empty, or contain `=` or control characters.",
            )
        elif (value := _parse_template(name, member)) is not None:
            values[name] = value
    return values


def _parse_endpoint(place: FilePlace, url: FilePlace) -> UpstreamEndpoint | None:
    headers = _parse_headers(place.get("headers"))
    address = parse_text(url)
    if address is None:
        return None
    _warn_variables(url)
    if problem := _find_url_problem(address):
        url.refuse(f"{url.name} {problem}.", "Write it like `http://127.0.0.1:8081/mcp`, without credentials.")
        return None
    warn_secrets(url, "url", address, _URL_SECRET_FIX)
    return UpstreamEndpoint(address, headers)


def _find_url_problem(address: str) -> str | None:
    """Return what is wrong with the address, without the address if it may hold a password."""
    if any(c.isspace() or not c.isprintable() for c in address):
        return f"is {format_value(address)}, which contains whitespace or control characters"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL: its host or port is invalid"
    if "@" in parts.netloc:
        return "has credentials before its host, which belong in `headers`"
    if parts.scheme not in {"http", "https"}:
        return f"is {format_value(address)}, which does not begin with http:// or https://"
    return None if host else f"is {format_value(address)}, which has no host"


def _parse_headers(place: FilePlace | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    values: dict[str, str] = {}
    seen: dict[str, int] = {}
    for name, member in place.iterate_members():
        if not _is_header(name, member, seen):
            continue
        seen[name.lower()] = member.line
        value = _parse_template(name, member)
        if value is not None and not _HEADER_VALUE.fullmatch(value):
            member.refuse(
                f"{member.name} contains characters that a header cannot have.",
                "Use only ASCII letters, digits and punctuation.",
            )
        elif value is not None:
            values[name] = value
    return values


def _is_header(name: str, member: FilePlace, seen: dict[str, int]) -> bool:
    if not _HEADER_NAME.fullmatch(name):
        member.refuse(f"{format_value(name)} is not a valid header name.", "Write it like `X-Team`.")
    elif name.lower() in _RESERVED_HEADERS:
        member.refuse(f"`{name}` is a header that the connection itself sets.", "Remove it.")
    elif name.lower() in seen:
        first = seen[name.lower()]
        member.refuse(f"`{name}` is also in line {first}; case does not matter.", "Keep one of them.")
    else:
        return True
    return False


def _parse_template(name: str, member: FilePlace) -> str | None:
    """Parse a value of `env` or `headers`. Its variables are replaced when the server is reached."""
    if not is_text(member, can_be_empty=True, is_hidden=True):
        return None
    value = cast(str, member.value)
    if _LINE_BREAK.search(value):
        member.refuse(f"{member.name} contains a line break.", "Write it on one line.")
        return None
    rest = VARIABLE.sub("", value)
    if "${" in rest:
        member.refuse(
            f"{member.name} has a `${{` without a valid variable name.",
            _DEFAULTS_FIX if _DEFAULTED_VARIABLE.search(rest) else _VARIABLE_FIX,
        )
        return None
    if _SHELL_VARIABLE.search(rest):
        # The name is not shown, because it may be part of a secret.
        member.warn(
            f"{member.name} has a `$` before a name, which is not replaced.",
            "Write `${NAME}` to insert the variable of that name.",
        )
    if rest == value:
        warn_secrets(member, name, value, _REFERENCE_FIX)
    return value


_VARIABLE_FIX = "Write variables like `${MY_TOKEN}`: letters, digits and `_`, then `}`."
_DEFAULTS_FIX = "Default values are not supported: write only `${MY_TOKEN}`, and set the variable."
_REFERENCE_FIX = "Keep it in an environment variable, and write `${NAME_OF_IT}` here."
_ARGS_SECRET_FIX = "If the program reads it from a variable, set that in `env` to `${NAME_OF_IT}`."
_URL_SECRET_FIX = "If the server accepts it in a header, set that in `headers` to `${NAME_OF_IT}`."


def _warn_variables(place: FilePlace) -> None:
    if isinstance(place.value, str) and (found := _ANY_VARIABLE.search(place.value)):
        place.warn(
            f"{place.name} contains `{found.group()}`, which is not replaced.",
            "Use variables only in `env` and `headers`.",
        )


def _parse_seconds(place: FilePlace | None, default: float) -> float:
    if place is None:
        return default
    value = place.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        place.refuse_kind("a number of seconds")
    elif not (math.isfinite(value) and 0 < value <= MAX_WAIT_SECONDS):
        place.refuse_kind(f"more than 0 and at most {MAX_WAIT_SECONDS} seconds")
    else:
        return float(value)
    return default


def _parse_start(place: FilePlace | None) -> bool:
    if place is None:
        return False
    if not isinstance(place.value, str) or place.value not in START_VALUES:
        place.refuse_kind(" or ".join(f'"{choice}"' for choice in START_VALUES))
        return False
    return START_VALUES[place.value]
