"""The servers that a gateway's file names: how they are reached, and what they pass through."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import cast
from urllib.parse import urlsplit

from everkept.core.json_text import Key
from everkept.core.mcp import CALL_TIMEOUT, CONNECT_TIMEOUT, VARIABLE, Endpoint, Launch, Reach
from everkept.families.gateway.file_values import (
    Place,
    check_keys,
    is_list,
    is_object,
    is_text,
    shown_value,
    text_of,
    texts_of,
    warn_of_secrets,
)
from everkept.families.gateway.model import (
    LONGEST,
    PassThrough,
    Problem,
    ToolConfig,
    UpstreamConfig,
    is_name,
    passed_name,
)

PASS_THROUGH_KEYS = ("prefix", "only", "hide", "rename", "trustReadOnlyHint")
NAME_RULE = f"1 to {LONGEST} of the characters A-Z, a-z, 0-9, `_`, `.` and `-`"


def pass_through_at(place: Place | None) -> PassThrough | None:
    """None where none are; every fault is noted."""
    if place is None or place.value is False:
        return None
    if place.value is True:
        return PassThrough(lines={"": place.line})
    if not isinstance(place.value, dict):
        place.must_be("true, or an object in { }")
        return None
    check_keys(place, PASS_THROUGH_KEYS)
    only, hide = place.get("only"), place.get("hide")
    passed = PassThrough(
        prefix=_prefix(place.get("prefix")),
        only=tuple(_distinct(only)) if only else None,
        hide=tuple(_distinct(hide)),
        rename=_rename(place.get("rename")),
        trusts_read_only_hint=_is_true(place.get("trustReadOnlyHint")),
        lines=_lines(place),
    )
    _check_choices(place, passed)
    return passed


def _prefix(place: Place | None) -> str:
    text = text_of(place, can_be_empty=True) or ""
    if place is not None and text and not is_name(text):
        place.must_be(NAME_RULE)
    return text


def _is_true(place: Place | None) -> bool:
    if place is not None and not isinstance(place.value, bool):
        place.must_be("true or false")
    return place is not None and place.value is True


def _distinct(place: Place | None) -> list[str]:
    names = texts_of(place)
    twice = sorted({name for name in names if names.count(name) > 1})
    if place is not None and twice:
        place.refuse(f"{place.name} has {shown_value(twice[0])} twice.", "Keep one of them.")
    return names


def _rename(place: Place | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    renamed: dict[str, str] = {}
    for theirs, member in place.members():
        ours = text_of(member)
        if ours is not None and not is_name(ours):
            member.must_be(NAME_RULE)
        elif ours is not None:
            renamed[theirs] = ours
    return renamed


def _lines(place: Place) -> dict[str, int]:
    """A new name says more of a tool than that it is among the others."""
    lines = {"": place.line}
    for key in ("only", "hide"):
        listed = place.get(key)
        items = listed.items() if listed and isinstance(listed.value, list) else ()
        lines |= {item.value: item.line for item in items if isinstance(item.value, str)}
    renamed = place.get("rename")
    if renamed and isinstance(renamed.value, dict):
        lines |= {theirs: member.line for theirs, member in renamed.members()}
    return lines


def _check_choices(place: Place, passed: PassThrough) -> None:
    """Whether what is said of one tool fits together."""
    rename, hide = place.get("rename"), place.get("hide")
    for name in passed.hide:
        if hide is not None and passed.only is not None and name in passed.only:
            hide.refuse(f"{shown_value(name)} is in `hide` and in `only`.", "Keep one of them.")
    for theirs in passed.rename:
        member = rename and rename.get(theirs)
        if member is None:
            continue
        if theirs in passed.hide:
            member.refuse(
                f"{shown_value(theirs)} has a new name, and is in `hide`.", "Keep one of them."
            )
        elif passed.only is not None and theirs not in passed.only:
            member.refuse(
                f"{shown_value(theirs)} has a new name, and is not in `only`.",
                "Add it there, or take the new name out.",
            )


def check_clashes(
    root: Place,
    tools: Sequence[ToolConfig],
    places: Mapping[str, Place],
    upstreams: Mapping[str, UpstreamConfig],
) -> None:
    """Notes names that are there twice, and new names for tools that are described as well.

    What else a server passes through is known only when it has been asked.
    """
    described = {(tool.upstream, tool.tool): tool for tool in tools}
    offered = list(_named(root))
    for server, config in upstreams.items():
        if config.pass_through is not None:
            lines = _passed_lines(places[server], config.pass_through)
            for theirs, line in lines.items():
                name = passed_name(theirs, config.pass_through)
                tool = described.get((server, theirs))
                if name is not None and tool is None:
                    offered.append((name, line))
                elif tool is not None and theirs in config.pass_through.rename:
                    root.notes.warnings.append(_unused(theirs, line, tool))
    root.notes.problems.extend(_clashes(offered))


def _named(root: Place) -> Iterator[tuple[str, int]]:
    """The names in `tools` with their lines, also of those that have other faults."""
    tools = root.get("tools")
    for item in tools.items() if tools and isinstance(tools.value, list) else ():
        name = item.get("name") if isinstance(item.value, dict) else None
        if name is not None and is_name(name.value):
            yield name.value, name.line


def _passed_lines(server: Place, through: PassThrough) -> dict[str, int]:
    """The tools of a server that the file itself says are passed through, with their lines."""
    path: tuple[Key, ...] = (*server.path, "passThrough")
    line = server.notes.document.line
    only = {name: line((*path, "only", i)) for i, name in enumerate(through.only or ())}
    return only | {name: line((*path, "rename", name)) for name in through.rename}


def _clashes(offered: Sequence[tuple[str, int]]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for name, line in sorted(offered, key=lambda offer: offer[1]):
        if name in first:
            yield Problem(
                line,
                f"Two tools are called {shown_value(name)}: here and in line {first[name]}.",
                "Give one of them another name.",
            )
        first.setdefault(name, line)


def _unused(theirs: str, line: int, tool: ToolConfig) -> Problem:
    return Problem(
        line,
        f"The new name of {shown_value(theirs)} is never used: line {tool.line} describes it.",
        "Take one of them out.",
    )


LONGEST_WAIT = 86_400  # seconds; a day

STARTS = {"first-use": False, "at-start": True}
LAUNCH_KEYS = ("command", "args", "env", "cwd")
ENDPOINT_KEYS = ("url", "headers")
SHARED_KEYS = ("connectTimeout", "callTimeout", "start", "passThrough")

_ELSEWHERE = {
    "type": "Leave it out: `command` or `url` says how the server is reached.",
    "transport": "Leave it out: `command` or `url` says how the server is reached.",
    "cmd": "Did you mean `command`?",
    "timeout": "Write `connectTimeout` or `callTimeout`.",
    "disabled": "Leave it out, or put the server into a comment.",
}
_IN_SHELLS = re.compile(r"\$[A-Za-z_]\w*")
_ANY_VARIABLE = re.compile(f"{VARIABLE.pattern}|{_IN_SHELLS.pattern}")
_WITH_DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*(:?[-=?+])")
_LINE_BREAK = re.compile("[\r\n]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
# The connection itself says these.
_RESERVED_HEADERS = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    }
)


def server_at(name: str, place: Place, folder: PurePath) -> UpstreamConfig | None:
    """None where so much is wrong that there is nothing to make; every fault is noted."""
    if not is_object(place):
        return None
    way = _way(place, folder)
    timeouts = {
        "connect_timeout": _seconds(place.get("connectTimeout"), CONNECT_TIMEOUT),
        "call_timeout": _seconds(place.get("callTimeout"), CALL_TIMEOUT),
    }
    starts_at_once = _starts_at_once(place.get("start"))
    passed = pass_through_at(place.get("passThrough"))
    if way is None:
        return None
    reach = Reach(name, way, **timeouts, starts_at_once=starts_at_once)
    return UpstreamConfig(reach, passed, place.line)


def _way(place: Place, folder: PurePath) -> Launch | Endpoint | None:
    command, url = place.get("command"), place.get("url")
    if url is not None and command is not None:
        url.refuse(
            f"{place.name} has both `command` and `url`.",
            "Keep `command` for a program to start, or `url` for a server that runs.",
        )
        return None
    _check_own_keys(place, has_command=command is not None, has_url=url is not None)
    if command is not None:
        return _launch(place, command, folder)
    if url is not None:
        return _endpoint(place, url)
    place.refuse(
        f"{place.name} says neither `command` nor `url`.",
        "Add `command` for a program to start, or `url` for a server that runs.",
    )
    return None


def _check_own_keys(place: Place, *, has_command: bool, has_url: bool) -> None:
    """Refuses what belongs to the other kind of server too."""
    check_keys(place, LAUNCH_KEYS + ENDPOINT_KEYS + SHARED_KEYS, _ELSEWHERE)
    foreign = {
        **(dict.fromkeys(ENDPOINT_KEYS, "url") if has_command else {}),
        **(dict.fromkeys(LAUNCH_KEYS, "command") if has_url else {}),
    }
    for key, member in place.members():
        if key in foreign:
            member.refuse(
                f"`{key}` goes with `{foreign[key]}`, which {place.name} does not have.",
                "Take it out.",
            )


def _launch(place: Place, command: Place, folder: PurePath) -> Launch | None:
    program = text_of(command)
    _warn_of_variables(command)
    args = _args(place.get("args"))
    env = _env(place.get("env"))
    cwd = _cwd(place.get("cwd"), folder)
    return Launch(program, tuple(args), env, cwd) if program else None


def _args(place: Place | None) -> list[str]:
    if place is None or not is_list(place):
        return []
    items = [item for item in place.items() if is_text(item, can_be_empty=True)]
    for item in items:
        _warn_of_variables(item)
    args = [cast(str, item.value) for item in items]
    warn_of_secrets(place, "args", " ".join(args), _NOT_IN_ARGS)
    return args


def _cwd(place: Place | None, folder: PurePath) -> str:
    """The folder of the file where none is named: in whichever we are, a stranger may have put a
    program or a module of the name that is looked for."""
    text = text_of(place)
    if place is None or text is None:
        return str(folder)
    _warn_of_variables(place)
    try:
        return str(Path(folder) / Path(text).expanduser())
    except RuntimeError:
        place.refuse(
            f"{place.name} is {shown_value(text)}, and nobody knows that home folder.",
            "Write the whole path.",
        )
        return str(folder)


def _env(place: Place | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    values: dict[str, str] = {}
    for name, member in place.members():
        if not name or "=" in name or not name.isprintable():
            member.refuse(
                f"{place.name} names the variable {shown_value(name)}.",
                "A name is not empty, and has no `=` in it.",
            )
        elif (value := _filled_later(name, member)) is not None:
            values[name] = value
    return values


def _endpoint(place: Place, url: Place) -> Endpoint | None:
    headers = _headers(place.get("headers"))
    address = text_of(url)
    if address is None:
        return None
    _warn_of_variables(url)
    if problem := _url_problem(address):
        url.refuse(
            f"{url.name} {problem}.", "Write it like `http://127.0.0.1:8081/mcp`, without a login."
        )
        return None
    warn_of_secrets(url, "url", address, _NOT_IN_URL)
    return Endpoint(address, headers)


def _url_problem(address: str) -> str | None:
    """Never says the address where that may hold a password."""
    if any(c.isspace() or not c.isprintable() for c in address):
        return f"is {shown_value(address)}, with blanks in it"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address: its host or its port cannot be read"
    if "@" in parts.netloc:
        return "has a login before its host; `headers` is the place for that"
    if parts.scheme not in {"http", "https"}:
        return f"is {shown_value(address)}, which begins neither with http:// nor with https://"
    return None if host else f"is {shown_value(address)}, which names no host"


def _headers(place: Place | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    values: dict[str, str] = {}
    seen: dict[str, int] = {}
    for name, member in place.members():
        if not _is_header(name, member, seen):
            continue
        seen[name.lower()] = member.line
        value = _filled_later(name, member)
        if value is not None and not _HEADER_VALUE.fullmatch(value):
            member.refuse(
                f"{member.name} has characters that no header can carry.",
                "Use plain letters, digits and signs.",
            )
        elif value is not None:
            values[name] = value
    return values


def _is_header(name: str, member: Place, seen: dict[str, int]) -> bool:
    if not _HEADER_NAME.fullmatch(name):
        member.refuse(f"{shown_value(name)} is no name of a header.", "Write it like `X-Team`.")
    elif name.lower() in _RESERVED_HEADERS:
        member.refuse(f"`{name}` is a header that the connection itself sets.", "Take it out.")
    elif name.lower() in seen:
        first = seen[name.lower()]
        member.refuse(f"`{name}` is in line {first} too; case does not count.", "Keep one of them.")
    else:
        return True
    return False


def _filled_later(name: str, member: Place) -> str | None:
    """A value of `env` or `headers`: variables in it are filled in when the server is reached."""
    if not is_text(member, can_be_empty=True, is_hidden=True):
        return None
    value = cast(str, member.value)
    if _LINE_BREAK.search(value):
        member.refuse(f"{member.name} has a line break in it.", "Write it on one line.")
        return None
    rest = VARIABLE.sub("", value)
    if "${" in rest:
        member.refuse(
            f"{member.name} has a `${{` that no variable follows.",
            _NO_DEFAULTS if _WITH_DEFAULT.search(rest) else _AS_VARIABLE,
        )
        return None
    if _IN_SHELLS.search(rest):
        # Not which: it may be part of a secret.
        member.warn(
            f"{member.name} has a `$` before a name, which stays as it is.",
            "Write `${NAME}` where the variable of that name is meant.",
        )
    if rest == value:
        warn_of_secrets(member, name, value, _AS_REFERENCE)
    return value


_AS_VARIABLE = "Write variables like `${MY_TOKEN}`: letters, digits and `_`, then `}`."
_NO_DEFAULTS = "Default values are not known here: write `${MY_TOKEN}` alone, and set it."
_AS_REFERENCE = "Keep it in a variable of your environment, and write `${NAME_OF_IT}` here."
_NOT_IN_ARGS = "Many programs read it from a variable: name that in `env`, with `${NAME_OF_IT}`."
_NOT_IN_URL = "Many servers take it in a header: name that in `headers`, with `${NAME_OF_IT}`."


def _warn_of_variables(place: Place) -> None:
    if isinstance(place.value, str) and (found := _ANY_VARIABLE.search(place.value)):
        place.warn(
            f"{place.name} has `{found.group()}` in it, which stays as it is.",
            "Variables are filled in inside `env` and `headers` alone.",
        )


def _seconds(place: Place | None, default: float) -> float:
    if place is None:
        return default
    value = place.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        place.must_be("a number of seconds")
    elif not (math.isfinite(value) and 0 < value <= LONGEST_WAIT):
        place.must_be(f"more than 0 and at most {LONGEST_WAIT} seconds")
    else:
        return float(value)
    return default


def _starts_at_once(place: Place | None) -> bool:
    if place is None:
        return False
    if not isinstance(place.value, str) or place.value not in STARTS:
        place.must_be(" or ".join(f'"{choice}"' for choice in STARTS))
        return False
    return STARTS[place.value]
