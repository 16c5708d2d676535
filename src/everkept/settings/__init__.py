"""Settings: flags, then the environment, then the config file, then defaults.

Only this module reads the environment.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from everkept.errors import InvalidInput
from everkept.settings.locations import (
    CONFIG_VARIABLE,
    NO_FILE,
    OWN_SUFFIX,
    PLUGIN_FOLDER,
    compute_database_key,
    find_config,
    find_gateway_path,
    find_kind,
    find_target,
    get_default_data_dir,
    is_existing,
    is_foreign_folder,
    list_config_candidates,
    list_wire_warnings,
)
from everkept.settings.locations import get_title as get_title
from everkept.settings.locations import is_database_folder as is_database_folder
from everkept.settings.model import DEFAULT_TOOLSETS, GATEWAY, SERVER_MODES, TOOLSETS, Settings
from everkept.settings.model import DIALECT_TOOLSETS as DIALECT_TOOLSETS
from everkept.settings.model import OWN_TOOLSETS as OWN_TOOLSETS
from everkept.settings.model import BankMode as BankMode
from everkept.settings.model import Dialect as Dialect
from everkept.settings.model import Engine as Engine
from everkept.settings.model import ViewChoice as ViewChoice
from everkept.settings.setting_values import NO_MODEL as NO_MODEL
from everkept.settings.setting_values import SHIPPED_MODEL as SHIPPED_MODEL
from everkept.settings.setting_values import GivenSetting, hide_secrets, parse_setting
from everkept.settings.setting_values import hide_in_address as hide_in_address
from everkept.settings.sources import (
    OTHER_VARIABLES,
    PLUGIN_FOLDER_KEYS,
    PREFIX,
    REMOTE_FLAGS,
    GatheredSettings,
    gather,
)
from everkept.values import list_fields

# Setting one of these selects the memory bank.
BANK_SETTINGS = frozenset(
    {"mode", "folder", "username", "remote", "ssh_user", "ssh_host", "ssh_path", "ssh_key", "bank_extras", "mode_tools"}
)
# Variables of the programs whose conversations are read and whose configuration is written.
CLIENT_VARIABLES = (
    "APPDATA",
    "BASIC_MEMORY_CONFIG_DIR",
    "BASIC_MEMORY_HOME",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_MEM_DATA_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "HOME",
    "LOCALAPPDATA",
    "MCP_MEMORY_BASE_DIR",
    "MCP_MEMORY_SQLITEVEC_PATH",
    "MCP_MEMORY_SQLITE_PATH",
    "MEM0_DIR",
    "MEMORY_FILE_PATH",
    "PATH",
    "USERPROFILE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
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
REPLICA = "replica"  # folder of the replica, inside the standby folder
DEFAULT = "default"
SCHEDULE_FILE = "backup-schedule.json"  # inside the data folder
PLUGIN_NOTES_FILE = "surrealdb-memory.txt"
PLUGIN_IMPORTED = "imported: "


class ExplainedSetting(NamedTuple):
    """Setting with its value for display and its source."""

    name: str
    value: str | int | float | bool | None
    source: str


def read_settings(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> Settings:
    """Return the settings from all sources. A flag that is None counts as not set.

    `folder` is the default working folder; without it, that is the current folder.
    """
    environment = os.environ if environment is None else environment
    return _build_settings(_gather(flags, environment), environment, folder)


def explain_settings(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> list[ExplainedSetting]:
    """Return every setting with its source, then the other entries of the file."""
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
    """Return the config file that is read, and the one that would be written."""
    environment = os.environ if environment is None else environment
    named = (flags or {}).get("config")
    explicit = None if named is None else str(named)
    try:
        used = find_config(explicit, environment)
    except InvalidInput:  # the named file does not exist yet
        used = None
    return used, find_target(explicit, environment)


def choose_toolsets(settings: Settings) -> tuple[str, ...]:
    """Return the names of the toolsets. `all` includes the gateway only if its file exists."""
    chosen = _parse_toolsets(GivenSetting("toolsets", settings.toolsets, "toolsets", DEFAULT))
    if settings.toolsets.strip() != "all" or settings.gateway_config is not None:
        return chosen
    return tuple(name for name in chosen if name != GATEWAY)


def is_on_server(settings: Settings) -> bool:
    """Return whether a server stores everything, which may be unreachable."""
    return settings.deployment_mode in SERVER_MODES


def find_server_engine(scheme: str) -> str | None:
    """Return the engine of a server address, or None for another address."""
    kind = find_kind(scheme)
    return None if kind is None else kind.engine


def get_surreal_folder(settings: Settings) -> Path:
    """Return the folder of SurrealDB's files, if it runs inside this program."""
    return settings.data_dir / "surreal"


def find_plugin_folder(settings: Settings) -> Path | None:
    """Return the database folder of the surrealdb-memory plugin: the one in its settings, or its usual one."""
    home = os.environ.get("HOME") or os.environ.get("USERPROFILE")
    named = settings.data_dir.parent / settings.data_dir.name.removesuffix(OWN_SUFFIX)
    candidates = [named, *([Path(home, PLUGIN_FOLDER)] if home else [])]
    return next((path for path in candidates if is_database_folder(path)), None)


def list_plugin_notes(settings: Settings) -> list[str]:
    """Return the databases of the plugin that were announced, and those that were imported after PLUGIN_IMPORTED."""
    file = settings.data_dir / PLUGIN_NOTES_FILE
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if is_existing(file) else []


def get_schedule_path(settings: Settings) -> Path:
    """Return the file of the schedule of backups. Without one, it does not exist."""
    return settings.data_dir / SCHEDULE_FILE


def get_standby_folder(settings: Settings) -> Path:
    """Return the folder of the replica and the journal. Each database has its own."""
    key = compute_database_key(settings.database_url or "", settings.namespace, settings.database)
    return settings.data_dir / "standby" / key


def build_engine_flags(settings: Settings) -> list[str]:
    """Return flags that lead another process to the same engine, if only flags select it."""
    flags = ["--engine", settings.engine] if settings.engine != "sqlite" else []
    for flag, value in (("--database-url", settings.database_url), ("--database-user", settings.database_user)):
        flags += [flag, value] if is_on_server(settings) and value else []
    return flags


def find_files_folder(settings: Settings) -> Path | None:
    """Return the SQLite files to read if there is no time to ask a server."""
    if is_on_server(settings):
        return get_standby_folder(settings) / REPLICA
    on_disk = settings.engine == "sqlite" and settings.deployment_mode != "embedded-memory"
    return settings.data_dir if on_disk else None


def keep_surreal_commits() -> None:
    """Make the embedded engine write each commit to the disk. Call it before its module is loaded."""
    os.environ.setdefault("SURREAL_SYNC_DATA", "true")


def list_warnings(settings: Settings) -> tuple[str, ...]:
    """Return sentences about settings that work but are not safe."""
    told: list[str] = []
    if settings.config is not None:
        # Most starts have no file, and load no reader.
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
    """Return the gateway's file, or its expected place."""
    path = settings.gateway_config or find_gateway_path(os.environ)
    if path is None:
        raise InvalidInput(
            "A gateway file is not set, and there is no home folder to search for one.",
            hint="Pass --gateway-config FILE.",
            argument="gateway_config",
        )
    return path


def list_decisive_files(settings: Settings) -> list[Path]:
    """Return the files that decide the settings of the next start, and whether it starts."""
    named = (settings.config, settings.gateway_config, settings.path, settings.ssh_key)
    return [*list_config_candidates(os.environ), *(path.absolute() for path in named if path is not None)]


def find_remote_bank(settings: Settings) -> str | None:
    """Return the address of a bank on another machine, or None for a local one.

    Raise InvalidInput for contradictory settings.
    """
    if settings.folder.strip() in ("", ".", "..") or set(settings.folder) & set("/\\:\0"):
        raise InvalidInput(
            f"The folder of the memory bank is {settings.folder!r}; it must be a single name.",
            hint="Use the name of a folder inside the project's folder, which --path sets.",
            argument="folder",
            value=settings.folder,
        )
    given = {flag: getattr(settings, name) for name, flag in REMOTE_FLAGS.items()}
    wrong = [flag for flag, value in given.items() if bool(value) != settings.remote]
    if wrong:
        raise InvalidInput(
            f"--remote needs {wrong[0]}." if settings.remote else f"{wrong[0]} needs --remote.",
            hint="Pass --remote --remote-user me --remote-host example.com --remote-path /home/me/project.",
            argument=wrong[0],
        )
    if not settings.remote:
        return None
    from urllib.parse import quote

    user, host, path = given.values()
    # A relative path is inside the home folder there, as for ssh.
    place = path.lstrip("/") if path.startswith("/") else f"~/{path.removeprefix('~/')}"
    return f"ssh://{quote(user)}@{host}/{quote(place, safe='/~')}"


def read_client_environment() -> dict[str, str]:
    """Return the variables that locate the files of other programs."""
    return {name: os.environ[name] for name in CLIENT_VARIABLES if os.environ.get(name)}


def is_inside_hook() -> bool:
    """Return whether one of our hooks started this process, so its own hooks must do nothing."""
    return bool(os.environ.get(HOOK_VARIABLE))


def build_hook_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for a process that a hook starts. No flag leads it to the password of an address."""
    password = settings.database_password
    login = {PREFIX + "DATABASE_PASSWORD": password} if is_on_server(settings) and password else {}
    return {**os.environ, HOOK_VARIABLE: "1", **login}


def read_upstream_environment() -> dict[str, str]:
    """Return the whole environment. The gateway's file decides what an upstream gets of it."""
    return dict(os.environ)


def list_environment_names() -> tuple[str, ...]:
    """Return the names of the variables that are set."""
    return tuple(os.environ)


def build_unset_environment() -> dict[str, str]:
    """Return the environment without our variables, for a child that gets all settings as flags."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    return kept | {CONFIG_VARIABLE: NO_FILE}


def _gather(flags: Mapping[str, Any] | None, environment: Mapping[str, str]) -> GatheredSettings:
    names = tuple(field.name for field in list_fields(Settings))
    return gather(names, flags or {}, environment)


def _find_gateway_file(gathered: GatheredSettings, named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file that was named, otherwise the one in our config folder if it exists.

    A project's folder is never searched, because its author could then run programs here.
    """
    if named is not None:
        given = gathered.settings["gateway_config"].value
        return None if str(given) == NO_FILE else named.absolute()
    config = gathered.settings.get("config")
    if (str(config.value) if config else environment.get(CONFIG_VARIABLE)) == NO_FILE:
        return None
    path = find_gateway_path(environment)
    return path if path is not None and is_existing(path) else None


@cache
def _read_types() -> dict[str, Any]:
    return get_type_hints(Settings)


def _build_settings(gathered: GatheredSettings, environment: Mapping[str, str], folder: Path | None = None) -> Settings:
    hints = _read_types()
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
    if values.get("only_project") is not None:
        _pin_project(gathered.settings["only_project"], values)
    if values.get("transport") != "http" or values.get("project") == AUTO:
        # A client of HTTP works in another folder, so ours counts only if a setting names it.
        values.setdefault("path", folder or Path.cwd())
    if "data_dir" not in values:
        values["data_dir"] = get_default_data_dir(os.environ)
    values["data_dir"] = _avoid_foreign_folder(values["data_dir"].absolute(), gathered.settings.get("data_dir"))
    return Settings(**values)


def _avoid_foreign_folder(data_dir: Path, given: GivenSetting | None) -> Path:
    """Return the data folder. If the plugin's key names the plugin's own database, our folder is beside it."""
    if given is None or not is_foreign_folder(data_dir):
        return data_dir
    if given.key in PLUGIN_FOLDER_KEYS:
        return data_dir.with_name(data_dir.name + OWN_SUFFIX)
    raise given.build_refusal(
        "this folder is the SurrealDB database of another program. Choose another folder. To import memories of the "
        "surrealdb-memory plugin, run `everkept import surrealdb-memory` with it."
    )


def _pin_project(given: GivenSetting, values: dict[str, Any]) -> None:
    """Make the only project the configured one. Raise InvalidInput for settings that reach others."""
    only = str(values["only_project"])
    if not only.strip() or only == AUTO:
        raise given.build_invalid("it must be the name of a project.")
    if values.get("project") not in (None, AUTO, only):
        raise given.build_invalid(f"`project` is {values['project']!r}. Set only one of them.")
    chosen = _parse_toolsets(GivenSetting("toolsets", values["toolsets"], "toolsets", DEFAULT))
    if not {*chosen}.isdisjoint(("bank", GATEWAY)):
        raise given.build_invalid(
            "the toolsets bank and gateway reach beyond a project. Set toolsets to memories,graph,history."
        )
    values["project"] = only


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
            raise given.build_invalid(f'unknown toolset "{name}": {", ".join(known)}.', known)
    return names


def _format_value(value: Any) -> str | int | float | bool | None:
    return hide_secrets(value if isinstance(value, str | int | float | None) else str(value))
