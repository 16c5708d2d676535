"""Settings: flags, then the environment, then the config file, then defaults.

The only reader of the environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from everkept.errors import InvalidInput
from everkept.settings.locations import (
    CONFIG_VARIABLE,
    NO_FILE,
    database_key,
    default_data_dir,
    gateway_path,
    is_there,
    kind_of,
    located,
    looked_for,
    target,
    wire_warnings,
)
from everkept.settings.locations import title_of as title_of
from everkept.settings.model import DEFAULT_TOOLSETS, GATEWAY, SERVER_MODES, TOOLSETS, Settings
from everkept.settings.model import OWN_TOOLSETS as OWN_TOOLSETS
from everkept.settings.model import BankMode as BankMode
from everkept.settings.model import Engine as Engine
from everkept.settings.sources import OTHER_VARIABLES, PREFIX, REMOTE_FLAGS, Gathered, gather
from everkept.settings.values import Given, parsed, shown
from everkept.values import fields

# Whoever sets one of these wants the memory bank.
OF_THE_BANK = frozenset(
    {
        "mode",
        "folder",
        "username",
        "remote",
        "ssh_user",
        "ssh_host",
        "ssh_path",
        "ssh_key",
        "bank_extras",
        "mode_tools",
    }
)
# Of the programs whose conversations are read and whose configuration is written.
CLIENT_VARIABLES = (
    "APPDATA",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "HOME",
    "USERPROFILE",
    "XDG_CONFIG_HOME",
)
HOOK_GUARD = "EVERKEPT_INSIDE_HOOK"
AUTO = "auto"
REPLICA = "replica"  # inside the folder of what stands in for a server
DEFAULT = "default"


class Explained(NamedTuple):
    """A setting, its value as it can be shown, and where it comes from."""

    name: str
    value: str | int | float | bool | None
    source: str


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
) -> Settings:
    """Settings from what was given; a flag that is None counts as not given.

    `folder` is the working folder where nobody names one; without it the current one is.
    """
    environment = os.environ if environment is None else environment
    return _settings(_gathered(flags, environment), environment, folder)


def explained(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> list[Explained]:
    """Every setting with where it comes from, and then what the file says beside them."""
    environment = os.environ if environment is None else environment
    gathered = _gathered(flags, environment)
    settings = _settings(gathered, environment)
    given = gathered.settings
    return [
        *(
            Explained(
                field.name,
                _shown(getattr(settings, field.name)),
                given[field.name].source if field.name in given else DEFAULT,
            )
            for field in fields(Settings)
        ),
        *(Explained(item.key, _shown(item.told), item.source) for item in gathered.others),
    ]


def config_paths(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Path | None, Path | None]:
    """The config file that is read, and the one that would be written."""
    environment = os.environ if environment is None else environment
    named = (flags or {}).get("config")
    explicit = None if named is None else str(named)
    try:
        used = located(explicit, environment)
    except InvalidInput:  # one that was named is not there yet
        used = None
    return used, target(explicit, environment)


def chosen_toolsets(settings: Settings) -> tuple[str, ...]:
    """Whoever wants all of them wants a gateway only where there is a file for it."""
    chosen = _toolsets(Given("toolsets", settings.toolsets, "toolsets", DEFAULT))
    if settings.toolsets.strip() != "all" or settings.gateway_config is not None:
        return chosen
    return tuple(name for name in chosen if name != GATEWAY)


def is_server(settings: Settings) -> bool:
    """Whether everything is kept by a server, which may be away."""
    return settings.deployment_mode in SERVER_MODES


def server_engine(scheme: str) -> str | None:
    """Of a server whose address begins with that; None where it is the address of none."""
    kind = kind_of(scheme)
    return None if kind is None else kind.engine


def surreal_folder(settings: Settings) -> Path:
    """Where SurrealDB keeps its files, where it runs inside this program."""
    return settings.data_dir / "surreal"


def standby_folder(settings: Settings) -> Path:
    """What stands in for a server that is away; no two databases share it."""
    key = database_key(settings.database_url or "", settings.namespace, settings.database)
    return settings.data_dir / "standby" / key


def engine_flags(settings: Settings) -> list[str]:
    """What leads another process to the same engine, where nothing but flags named it."""
    flags = ["--engine", settings.engine] if settings.engine != "sqlite" else []
    for flag, value in (
        ("--database-url", settings.database_url),
        ("--database-user", settings.database_user),
    ):
        flags += [flag, value] if is_server(settings) and value else []
    return flags


def files_folder(settings: Settings) -> Path | None:
    """The SQLite files that are read where there is no time for a server to answer."""
    if is_server(settings):
        return standby_folder(settings) / REPLICA
    on_disk = settings.engine == "sqlite" and settings.deployment_mode != "embedded-memory"
    return settings.data_dir if on_disk else None


def keep_surreal_commits() -> None:
    """A commit of the embedded engine is on the disk; said before its module is loaded."""
    os.environ.setdefault("SURREAL_SYNC_DATA", "true")


def warnings_of(settings: Settings) -> tuple[str, ...]:
    """What works and is not safe: sentences for whoever starts a server or asks."""
    told: list[str] = []
    if settings.config is not None:
        # Most have no file, and load no reader.
        from everkept.settings.config_file import reader_warnings

        told += reader_warnings(settings.config)
    if is_server(settings) and settings.database_url:
        address, password = settings.database_url, settings.database_password
        told += wire_warnings(address, password, settings.database_ca)
    return tuple(told)


def gateway_target(settings: Settings) -> Path:
    """The gateway's file, or where it would be looked for."""
    path = settings.gateway_config or gateway_path(os.environ)
    if path is None:
        raise InvalidInput(
            "No gateway file is named, and there is no home folder to look for one in.",
            hint="--gateway-config FILE names one.",
            argument="gateway_config",
        )
    return path


def decisive_files(settings: Settings) -> list[Path]:
    """Return the files that decide which settings a next start has, and whether it starts."""
    named = (settings.config, settings.gateway_config, settings.path, settings.ssh_key)
    return [*looked_for(os.environ), *(path.absolute() for path in named if path is not None)]


def remote_bank(settings: Settings) -> str | None:
    """The address of a bank on another machine; None where it is on this one.

    Raises InvalidInput for settings that do not go together.
    """
    if settings.folder.strip() in ("", ".", "..") or set(settings.folder) & set("/\\:\0"):
        raise InvalidInput(
            f"The folder of the memory bank is {settings.folder!r}; it must be one name.",
            hint="It lies inside the folder of the project, which --path names.",
            argument="folder",
            value=settings.folder,
        )
    given = {flag: getattr(settings, name) for name, flag in REMOTE_FLAGS.items()}
    wrong = [flag for flag, value in given.items() if bool(value) != settings.remote]
    if wrong:
        raise InvalidInput(
            f"--remote needs {wrong[0]}." if settings.remote else f"{wrong[0]} needs --remote.",
            hint="As in --remote --remote-user me --remote-host example.com "
            "--remote-path /home/me/project.",
            argument=wrong[0],
        )
    if not settings.remote:
        return None
    from urllib.parse import quote

    user, host, path = given.values()
    # A path that is not absolute lies in the home folder there, as ssh itself has it.
    place = path.lstrip("/") if path.startswith("/") else f"~/{path.removeprefix('~/')}"
    return f"ssh://{quote(user)}@{host}/{quote(place, safe='/~')}"


def client_environment() -> dict[str, str]:
    """Where other programs keep their files, as far as variables say so."""
    return {name: os.environ[name] for name in CLIENT_VARIABLES if os.environ.get(name)}


def is_inside_hook() -> bool:
    """Whether a hook of ours has started this process, so that its own hooks must keep still."""
    return bool(os.environ.get(HOOK_GUARD))


def environment_of_hook() -> dict[str, str]:
    """The environment for what a hook starts."""
    return {**os.environ, HOOK_GUARD: "1"}


def upstream_environment() -> dict[str, str]:
    """All of it, for the gateway's servers: what they get of it is for their file to say."""
    return dict(os.environ)


def environment_names() -> tuple[str, ...]:
    """The variables that are set, without their values."""
    return tuple(os.environ)


def unset_environment() -> dict[str, str]:
    """The environment without our variables, for a child whose settings are all given as flags."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    return kept | {CONFIG_VARIABLE: NO_FILE}


def _gathered(flags: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Gathered:
    names = tuple(field.name for field in fields(Settings))
    return gather(names, flags or {}, environment)


def _gateway_file(
    gathered: Gathered, named: Path | None, environment: Mapping[str, str]
) -> Path | None:
    """The file that was named, else the one in our own config folder where there is one.

    A project's folder is never looked into: whoever wrote it could run programs here.
    """
    if named is not None:
        given = gathered.settings["gateway_config"].value
        return None if str(given) == NO_FILE else named.absolute()
    config = gathered.settings.get("config")
    if (str(config.value) if config else environment.get(CONFIG_VARIABLE)) == NO_FILE:
        return None
    path = gateway_path(environment)
    return path if path is not None and is_there(path) else None


def _settings(
    gathered: Gathered, environment: Mapping[str, str], folder: Path | None = None
) -> Settings:
    hints = get_type_hints(Settings)
    values = {name: parsed(hints[name], item) for name, item in gathered.settings.items()}
    values["config"] = gathered.file
    values["gateway_config"] = _gateway_file(gathered, values.get("gateway_config"), environment)
    if toolsets := gathered.settings.get("toolsets"):
        _toolsets(toolsets)
    else:
        bank = any(name in OF_THE_BANK for name in gathered.settings)
        gateway = values["gateway_config"] is not None
        added = ("bank",) * bank + (GATEWAY,) * gateway
        values["toolsets"] = ",".join((*DEFAULT_TOOLSETS, *added))
    if values.get("transport") != "http" or values.get("project") == AUTO:
        # A client of HTTP works in a folder of its own: ours is meant only where it is named.
        values.setdefault("path", folder or Path.cwd())
    if "data_dir" not in values:
        values["data_dir"] = default_data_dir(os.environ)
    values["data_dir"] = values["data_dir"].absolute()
    return Settings(**values)


def _toolsets(given: Given) -> tuple[str, ...]:
    value = parsed(str, given)
    if value == "all":
        return TOOLSETS
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise given.invalid(f"name one of {', '.join((*TOOLSETS, 'all'))}.", (*TOOLSETS, "all"))
    for name in names:
        if name not in TOOLSETS:
            known = (*TOOLSETS, "all")
            raise given.invalid(f'there is no toolset "{name}": {", ".join(known)}.', known)
    return names


def _shown(value: Any) -> str | int | float | bool | None:
    return shown(value if isinstance(value, str | int | float | None) else str(value))
