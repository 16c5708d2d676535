"""Settings: flags, then the environment, then defaults. The only reader of the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from recollect.errors import InvalidInput

PREFIX = "RECOLLECT_"

Transport = Literal["stdio", "http"]
Dialect = Literal["recollect", "server-memory"]
LogLevel = Literal["debug", "info", "warning", "error"]
Synchronous = Literal["normal", "full"]

TOOLSETS = ("graph",)
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default. The comments are the text of docs/settings.md."""

    #: Folder that holds all data; made when missing. Default: the platform's data folder.
    data_dir: Path
    #: Project to work in, made at the first write; `auto` takes the one of the working folder.
    project: str | None = None
    #: Folder that counts as the working folder. Default: CLAUDE_PROJECT_DIR, else the current one.
    path: Path | None = None
    #: Which families of tools are offered: a list with commas, or `all`.
    toolsets: str = "all"
    #: Offer only the tools that change nothing.
    read_only: bool = False
    #: Names and shapes of the tools: our own, or those of the official memory server.
    dialect: Dialect = "recollect"
    #: How clients connect.
    transport: Transport = "stdio"
    #: Address that the HTTP transport listens on.
    host: str = "127.0.0.1"
    #: Port that the HTTP transport listens on.
    port: int = 8081
    #: Serve HTTP on the loopback address without asking for a token.
    no_token: bool = False
    #: When a commit counts as written: `full` survives a power cut, `normal` any crash.
    synchronous: Synchronous = "normal"
    #: What is written to standard error.
    log_level: LogLevel = "warning"
    #: What clients should start, where it is not this program itself. `./run` sets it.
    launcher: str | None = None
    #: Offer the fixtures of the protocol's conformance suite. For developers.
    conformance: bool = False


def load(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Settings from what was given; a flag that is None counts as not given."""
    environment = os.environ if environment is None else environment
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    hints = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for field in fields(Settings):
        variable = PREFIX + field.name.upper()
        if field.name in given:
            values[field.name] = _parsed(hints[field.name], given[field.name], field.name)
        elif environment.get(variable):
            values[field.name] = _parsed(hints[field.name], environment[variable], variable)
    values.setdefault("path", _working_folder(environment))
    if "data_dir" not in values:
        values["data_dir"] = _default_data_dir()
    values["data_dir"] = values["data_dir"].expanduser().absolute()
    settings = Settings(**values)
    chosen_toolsets(settings)
    return settings


def chosen_toolsets(settings: Settings) -> tuple[str, ...]:
    if settings.toolsets == "all":
        return TOOLSETS
    names = tuple(name.strip() for name in settings.toolsets.split(",") if name.strip())
    for name in names:
        if name not in TOOLSETS:
            raise InvalidInput(
                f'There is no toolset "{name}".',
                hint=f"Known: {', '.join(TOOLSETS)}, all.",
                argument="toolsets",
                value=settings.toolsets,
            )
    return names


def unset_environment() -> dict[str, str]:
    """The environment without our variables, for a child whose settings are all given as flags."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _working_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("CLAUDE_PROJECT_DIR") or Path.cwd())


def _default_data_dir() -> Path:
    # Imported here: a start that names its folder does not pay for it.
    from platformdirs import user_data_path

    return user_data_path("recollect", appauthor=False)


def _parsed(kind: Any, value: Any, name: str) -> Any:
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if choices:
        return _choice(str(value), choices, name)
    if kind is bool:
        return value if isinstance(value, bool) else _boolean(str(value), name)
    if kind is int:
        return _number(value, name)
    if Path in (kind, *get_args(kind)):
        if value == "":
            raise InvalidInput(f"`{name}` is empty.", argument=name, value=value)
        return Path(cast(str, value))
    return str(value)


def _choice(value: str, choices: tuple[str, ...], name: str) -> str:
    if value not in choices:
        raise InvalidInput(
            f"`{name}` is {value!r}; it must be one of {', '.join(choices)}.",
            argument=name,
            value=value,
        )
    return value


def _boolean(value: str, name: str) -> bool:
    if value.lower() in {"1", "true", "yes", "on"}:
        return True
    if value.lower() in {"0", "false", "no", "off"}:
        return False
    raise InvalidInput(
        f"`{name}` is {value!r}; it must be true or false.", argument=name, value=value
    )


def _number(value: Any, name: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidInput(
            f"`{name}` is {value!r}; it must be a whole number.", argument=name, value=value
        ) from None
