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
    compute_database_key,
    find_config,
    find_gateway_path,
    find_kind,
    find_target,
    get_default_data_dir,
    is_existing,
    list_config_candidates,
    list_wire_warnings,
)
from everkept.settings.locations import get_title as get_title
from everkept.settings.model import DEFAULT_TOOLSETS, GATEWAY, SERVER_MODES, TOOLSETS, Settings
from everkept.settings.model import OWN_TOOLSETS as OWN_TOOLSETS
from everkept.settings.model import BankMode as BankMode
from everkept.settings.model import Engine as Engine
from everkept.settings.setting_values import GivenSetting, hide_secrets, parse_setting
from everkept.settings.sources import OTHER_VARIABLES, PREFIX, REMOTE_FLAGS, GatheredSettings, gather
from everkept.values import list_fields

# Whoever sets one of these wants the memory bank.
BANK_SETTINGS = frozenset(
    {"mode", "folder", "username", "remote", "ssh_user", "ssh_host", "ssh_path", "ssh_key", "bank_extras", "mode_tools"}
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
HOOK_VARIABLE = "EVERKEPT_INSIDE_HOOK"
# What an account or a connection may use.
LIMITS = frozenset(
    {
        "rate_limit",
        "quota_sessions",
        "quota_session_hours",
        "quota_calls",
        "quota_answer_bytes",
        "quota_projects",
        "quota_project_records",
        "quota_project_bytes",
        "quota_account_records",
        "quota_account_bytes",
        "max_connections",
        "max_connections_per_address",
        "header_timeout",
        "body_timeout",
        "idle_timeout",
        "send_timeout",
    }
)
AUTO = "auto"
REPLICA = "replica"  # inside the folder of what stands in for a server
DEFAULT = "default"


class ExplainedSetting(NamedTuple):
    """A setting, its value as it can be shown, and where it comes from."""

    name: str
    value: str | int | float | bool | None
    source: str


def read_settings(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> Settings:
    """Settings from what was given; a flag that is None counts as not given.

    `folder` is the working folder where nobody names one; without it the current one is.
    """
    environment = os.environ if environment is None else environment
    return _build_settings(_gather(flags, environment), environment, folder)


def explain_settings(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> list[ExplainedSetting]:
    """Every setting with where it comes from, and then what the file says beside them."""
    environment = os.environ if environment is None else environment
    gathered = _gather(flags, environment)
    settings = _build_settings(gathered, environment)
    given = gathered.settings
    return [
        *(
            ExplainedSetting(
                field.name,
                _format_value(getattr(settings, field.name)),
                given[field.name].source if field.name in given else DEFAULT,
            )
            for field in list_fields(Settings)
        ),
        *(ExplainedSetting(item.key, _format_value(item.shown_value), item.source) for item in gathered.others),
    ]


def find_config_paths(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Path | None, Path | None]:
    """The config file that is read, and the one that would be written."""
    environment = os.environ if environment is None else environment
    named = (flags or {}).get("config")
    explicit = None if named is None else str(named)
    try:
        used = find_config(explicit, environment)
    except InvalidInput:  # one that was named is not there yet
        used = None
    return used, find_target(explicit, environment)


def choose_toolsets(settings: Settings) -> tuple[str, ...]:
    """Whoever wants all of them wants a gateway only where there is a file for it."""
    chosen = _parse_toolsets(GivenSetting("toolsets", settings.toolsets, "toolsets", DEFAULT))
    if settings.toolsets.strip() != "all" or settings.gateway_config is not None:
        return chosen
    return tuple(name for name in chosen if name != GATEWAY)


def is_on_server(settings: Settings) -> bool:
    """Whether everything is kept by a server, which may be away."""
    return settings.deployment_mode in SERVER_MODES


def find_server_engine(scheme: str) -> str | None:
    """Of a server whose address begins with that; None where it is the address of none."""
    kind = find_kind(scheme)
    return None if kind is None else kind.engine


def get_surreal_folder(settings: Settings) -> Path:
    """Where SurrealDB keeps its files, where it runs inside this program."""
    return settings.data_dir / "surreal"


def get_standby_folder(settings: Settings) -> Path:
    """What stands in for a server that is away; no two databases share it."""
    key = compute_database_key(settings.database_url or "", settings.namespace, settings.database)
    return settings.data_dir / "standby" / key


def build_engine_flags(settings: Settings) -> list[str]:
    """What leads another process to the same engine, where nothing but flags named it."""
    flags = ["--engine", settings.engine] if settings.engine != "sqlite" else []
    for flag, value in (("--database-url", settings.database_url), ("--database-user", settings.database_user)):
        flags += [flag, value] if is_on_server(settings) and value else []
    return flags


def find_files_folder(settings: Settings) -> Path | None:
    """The SQLite files that are read where there is no time for a server to answer."""
    if is_on_server(settings):
        return get_standby_folder(settings) / REPLICA
    on_disk = settings.engine == "sqlite" and settings.deployment_mode != "embedded-memory"
    return settings.data_dir if on_disk else None


def keep_surreal_commits() -> None:
    """A commit of the embedded engine is on the disk; said before its module is loaded."""
    os.environ.setdefault("SURREAL_SYNC_DATA", "true")


def list_warnings(settings: Settings) -> tuple[str, ...]:
    """What works and is not safe: sentences for whoever starts a server or asks."""
    told: list[str] = []
    if settings.config is not None:
        # Most have no file, and load no reader.
        from everkept.settings.config_file import list_reader_warnings

        told += list_reader_warnings(settings.config)
    if is_on_server(settings) and settings.database_url:
        address, password = settings.database_url, settings.database_password
        told += list_wire_warnings(address, password, settings.database_ca)
    return tuple(told)


def list_limits(settings: Settings) -> dict[str, int | float]:
    """Return the limits of accounts and of connections, by their names."""
    return {field.name: getattr(settings, field.name) for field in list_fields(Settings) if field.name in LIMITS}


def get_gateway_path(settings: Settings) -> Path:
    """The gateway's file, or where it would be looked for."""
    path = settings.gateway_config or find_gateway_path(os.environ)
    if path is None:
        raise InvalidInput(
            "No gateway file is named, and there is no home folder to look for one in.",
            hint="--gateway-config FILE names one.",
            argument="gateway_config",
        )
    return path


def list_decisive_files(settings: Settings) -> list[Path]:
    """Return the files that decide which settings a next start has, and whether it starts."""
    named = (settings.config, settings.gateway_config, settings.path, settings.ssh_key)
    return [*list_config_candidates(os.environ), *(path.absolute() for path in named if path is not None)]


def find_remote_bank(settings: Settings) -> str | None:
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
            hint="As in --remote --remote-user me --remote-host example.com --remote-path /home/me/project.",
            argument=wrong[0],
        )
    if not settings.remote:
        return None
    from urllib.parse import quote

    user, host, path = given.values()
    # A path that is not absolute lies in the home folder there, as ssh itself has it.
    place = path.lstrip("/") if path.startswith("/") else f"~/{path.removeprefix('~/')}"
    return f"ssh://{quote(user)}@{host}/{quote(place, safe='/~')}"


def read_client_environment() -> dict[str, str]:
    """Where other programs keep their files, as far as variables say so."""
    return {name: os.environ[name] for name in CLIENT_VARIABLES if os.environ.get(name)}


def is_inside_hook() -> bool:
    """Whether a hook of ours has started this process, so that its own hooks must keep still."""
    return bool(os.environ.get(HOOK_VARIABLE))


def build_hook_environment() -> dict[str, str]:
    """The environment for what a hook starts."""
    return {**os.environ, HOOK_VARIABLE: "1"}


def read_upstream_environment() -> dict[str, str]:
    """All of it, for the gateway's servers: what they get of it is for their file to say."""
    return dict(os.environ)


def list_environment_names() -> tuple[str, ...]:
    """The variables that are set, without their values."""
    return tuple(os.environ)


def build_unset_environment() -> dict[str, str]:
    """The environment without our variables, for a child whose settings are all given as flags."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    return kept | {CONFIG_VARIABLE: NO_FILE}


def _gather(flags: Mapping[str, Any] | None, environment: Mapping[str, str]) -> GatheredSettings:
    names = tuple(field.name for field in list_fields(Settings))
    return gather(names, flags or {}, environment)


def _find_gateway_file(gathered: GatheredSettings, named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file that was named, else the one in our own config folder where there is one.

    A project's folder is never looked into: whoever wrote it could run programs here.
    """
    if named is not None:
        given = gathered.settings["gateway_config"].value
        return None if str(given) == NO_FILE else named.absolute()
    config = gathered.settings.get("config")
    if (str(config.value) if config else environment.get(CONFIG_VARIABLE)) == NO_FILE:
        return None
    path = find_gateway_path(environment)
    return path if path is not None and is_existing(path) else None


def _build_settings(gathered: GatheredSettings, environment: Mapping[str, str], folder: Path | None = None) -> Settings:
    hints = get_type_hints(Settings)
    values = {name: parse_setting(hints[name], item) for name, item in gathered.settings.items()}
    values["config"] = gathered.file
    values["gateway_config"] = _find_gateway_file(gathered, values.get("gateway_config"), environment)
    if toolsets := gathered.settings.get("toolsets"):
        _parse_toolsets(toolsets)
    else:
        bank = any(name in BANK_SETTINGS for name in gathered.settings)
        gateway = values["gateway_config"] is not None
        added = ("bank",) * bank + (GATEWAY,) * gateway
        values["toolsets"] = ",".join((*DEFAULT_TOOLSETS, *added))
    if values.get("transport") != "http" or values.get("project") == AUTO:
        # A client of HTTP works in a folder of its own: ours is meant only where it is named.
        values.setdefault("path", folder or Path.cwd())
    if "data_dir" not in values:
        values["data_dir"] = get_default_data_dir(os.environ)
    values["data_dir"] = values["data_dir"].absolute()
    return Settings(**values)


def _parse_toolsets(given: GivenSetting) -> tuple[str, ...]:
    value = parse_setting(str, given)
    if value == "all":
        return TOOLSETS
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise given.build_invalid(f"name one of {', '.join((*TOOLSETS, 'all'))}.", (*TOOLSETS, "all"))
    for name in names:
        if name not in TOOLSETS:
            known = (*TOOLSETS, "all")
            raise given.build_invalid(f'there is no toolset "{name}": {", ".join(known)}.', known)
    return names


def _format_value(value: Any) -> str | int | float | bool | None:
    return hide_secrets(value if isinstance(value, str | int | float | None) else str(value))
