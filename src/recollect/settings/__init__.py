"""Settings: flags, then the environment, then the config file, then defaults.

The only reader of the environment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

from recollect.errors import InvalidInput
from recollect.settings.places import (
    CONFIG_VARIABLE,
    NO_FILE,
    default_data_dir,
    gateway_path,
    is_there,
    located,
    target,
)
from recollect.settings.sources import OTHER_VARIABLES, PREFIX, REMOTE_FLAGS, Gathered, gather
from recollect.settings.values import Given, parsed, shown

Transport = Literal["stdio", "http"]
Dialect = Literal["recollect", "server-memory"]
LogLevel = Literal["debug", "info", "warning", "error"]
Synchronous = Literal["normal", "full"]
DeploymentMode = Literal["embedded-file", "embedded-memory"]
EmbeddingModel = Literal["all-MiniLM-L6-v2", "none"]
BankMode = Literal["architect", "ask", "code", "debug", "test"]

OWN_TOOLSETS = ("memories", "graph", "history", "bank")
GATEWAY = "gateway"
TOOLSETS = (*OWN_TOOLSETS, GATEWAY)
# A list of tools stands in every conversation's context, so not all are offered unasked.
DEFAULT_TOOLSETS = ("memories", "graph", "history")
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
HOOK_GUARD = "RECOLLECT_INSIDE_HOOK"
AUTO = "auto"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default. The comments are the text of docs/settings.md."""

    #: Folder that holds all data; made when missing. Default: the platform's data folder.
    data_dir: Path
    #: File to read settings from, `none` for no file. Default: `config.md` in the config folder.
    config: Path | None = None
    #: Project to work in, made at the first write; `auto` takes the one of the working folder.
    project: str | None = None
    #: Working folder. Default: CLAUDE_PROJECT_DIR, else the current one; over HTTP none.
    path: Path | None = None
    #: Where everything is kept: in the data folder, or in memory until the program ends.
    deployment_mode: DeploymentMode = "embedded-file"
    #: Toolsets, with commas, or `all`. Settings of the bank and a gateway's file add theirs.
    toolsets: str = ",".join(DEFAULT_TOOLSETS)
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
    #: Session that memories belong to. Default: CLAUDE_CODE_SESSION_ID, else a new one.
    session_id: str | None = None
    #: Memories that one session may store on its own; explicit ones past it get a warning.
    max_memories_per_session: int = 100
    #: Write a summary of the session when the server ends.
    consolidation_on_shutdown: bool = True
    #: Let an assistant's hooks give context and take in what happened.
    hooks: bool = True
    #: Hooks: tokens that the context at the start of a session may take.
    session_token_budget: int = 2000
    #: Hooks: tokens that what is recalled for one prompt may take.
    prompt_token_budget: int = 1500
    #: Hooks: remember failures and edits by themselves, as memories that fade.
    automatic_memories: bool = True
    #: What finds memories by meaning; `none` leaves the search by words.
    embedding_model: EmbeddingModel = "all-MiniLM-L6-v2"
    #: Replace keys, tokens and passwords in texts before they are stored.
    mask_secrets: bool = True
    #: Seconds after which a search answers with what it has found so far.
    recall_time_limit: float = 2.0
    #: History: folders whose conversations are left out, with commas; `*` stands for anything.
    history_exclude: str = ""
    #: Memory bank: the mode of working to begin with.
    mode: BankMode = "code"
    #: Memory bank: name of its folder inside the working folder.
    folder: str = "memory-bank"
    #: Memory bank: who made an entry; a name or the address of a GitHub profile.
    username: str = "Unknown User"
    #: Memory bank: offer the eight tools that came after the original's specification too.
    bank_extras: bool = False
    #: Memory bank: offer only the tools that the mode of the start is for.
    mode_tools: bool = False
    #: Memory bank: it lies on another machine, reached over SSH. Needs the three next ones.
    remote: bool = False
    #: Memory bank on another machine: the user there. The flag is `--remote-user`.
    ssh_user: str | None = None
    #: Memory bank on another machine: its name, with `:port` where needed. `--remote-host`.
    ssh_host: str | None = None
    #: Memory bank on another machine: the folder of the project, or the bank's. `--remote-path`.
    ssh_path: str | None = None
    #: Private key for SSH. Default: those of the agent and of `~/.ssh`.
    ssh_key: Path | None = None
    #: File with the keys of known hosts. Default: `~/.ssh/known_hosts`.
    known_hosts: Path | None = None
    #: Gateway: the file of its tools, or `none`. Default: `tools.json` in the config folder.
    gateway_config: Path | None = None
    #: When a commit counts as written: `full` survives a power cut, `normal` any crash.
    synchronous: Synchronous = "normal"
    #: What is written to standard error.
    log_level: LogLevel = "warning"
    #: What clients should start, where it is not this program itself. `./run` sets it.
    launcher: str | None = None
    #: Offer the fixtures of the protocol's conformance suite. For developers.
    conformance: bool = False


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
        *(Explained(item.name, _shown(item.value), item.source) for item in gathered.others),
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
