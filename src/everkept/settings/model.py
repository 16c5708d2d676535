"""Every setting with its default, and the rules that connect them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from everkept.settings.locations import (
    PASSWORD_PLACES,
    POSTGRES,
    SURREAL,
    ServerKind,
    check_schema,
    is_existing,
    is_near_server,
    parse_server_kind,
    split_address,
    with_database,
)
from everkept.settings.setting_values import SHIPPED_MODEL, GivenSetting, parse_setting
from everkept.values import Value, field

Engine = Literal["sqlite", "surreal", "postgres"]
DeploymentMode = Literal["embedded-file", "embedded-memory", "local-server", "remote"]

EMBEDDED_MODES = ("embedded-file", "embedded-memory")
SERVER_MODES = ("local-server", "remote")
SERVER_SETTINGS = ("database_url", "database_user", "database_password", "database_ca")
DEFAULT_NAMES = {"namespace": "memory", "database": "default"}

# Compiled only if there is a name to check, as few starts have one.
_NAME = r"[A-Za-z0-9_-]{1,64}"
# Each store has its own database, whose name begins with the configured one.
_STORE_NAME = r"(?P<whole>.+)_(?:user|history|[0-9a-f]{32})"


def complete_settings(
    given: Mapping[str, GivenSetting], in_body: Sequence[GivenSetting]
) -> tuple[dict[str, GivenSetting], list[GivenSetting]]:
    """Return the settings with those that follow from them, and an address that is not used.

    An address in the body of a file counts only if the mode or the engine needs one.
    """
    given, settings = dict(given), {item.name: item for item in in_body}
    if "database_url" in given or "database_url" in settings:  # few starts load this
        from everkept.settings.server_addresses import separate_login

        given, settings = separate_login(given), separate_login(settings)
    settings |= given
    mode = _find_mode(given, settings)
    unused: list[GivenSetting] = []
    if mode is not None and mode.value in SERVER_MODES:
        settings = _complete_server(settings, mode)
    else:
        if mode is None:
            _check_address_is_named(given)
        if address := settings.pop("database_url", None):
            unused.append(address)
    _check_names(settings)
    return settings, unused


def _find_mode(given: Mapping[str, GivenSetting], settings: Mapping[str, GivenSetting]) -> GivenSetting | None:
    """Return the given mode, or the one that follows from the other settings."""
    address, mode, engine = (given.get(name) for name in ("database_url", "deployment_mode", "engine"))
    if address is not None and (mode is None or _is_for_this_run(address, mode)):
        return _imply_mode(address)
    if engine is None or not _is_engine(engine, POSTGRES.engine):
        return mode
    if mode is not None and mode.value in EMBEDDED_MODES:
        raise engine.build_refusal(
            f"{POSTGRES.title} is always a server, and `{mode.key}` is {mode.value}. Remove one of them."
        )
    if mode is None:
        return _imply_mode(_choose_address(engine, settings, POSTGRES))
    return mode


def _is_for_this_run(address: GivenSetting, mode: GivenSetting) -> bool:
    """Return whether it was given for this run, so it is not a leftover of another mode."""
    return address.is_flag and not mode.is_flag and mode.value in EMBEDDED_MODES


def _imply_mode(address: GivenSetting) -> GivenSetting:
    mode = "local-server" if is_near_server(split_address(address)) else "remote"
    return GivenSetting("deployment_mode", mode, address.key, f"follows from {address.key}")


def _complete_server(given: dict[str, GivenSetting], mode: GivenSetting) -> dict[str, GivenSetting]:
    from everkept.settings.server_addresses import format_address, get_socket_folder

    kind, engine = _choose_kind(given, mode), given.get("engine")
    address = _choose_address(mode, given, kind)
    completed = {
        "deployment_mode": mode,
        "engine": engine or GivenSetting("engine", kind.engine, mode.key, f"follows from {mode.key}"),
        "database_url": address._replace(value=format_address(split_address(address))),
    }
    if kind is POSTGRES:
        completed |= with_database(given, address)
        if "database_user" not in given and get_socket_folder(split_address(address)) is not None:
            given = given | {"database_user": _name_system_user(address)}
    _check_credentials(given, address, kind)
    if ca := given.get("database_ca"):
        completed["database_ca"] = _require_file(ca)
    return given | completed


def _name_system_user(address: GivenSetting) -> GivenSetting:
    """Return the user of this process, whom PostgreSQL usually knows by the same name on a socket."""
    from getpass import getuser

    try:
        name = getuser()
    except (OSError, KeyError, ImportError):  # the last two before Python 3.13
        name = ""
    return GivenSetting("database_user", name, address.key, f"follows from {address.key}")


def _choose_kind(given: Mapping[str, GivenSetting], mode: GivenSetting) -> ServerKind:
    """Return the kind of server. Raise Refused if the engine contradicts it."""
    engine, address = given.get("engine"), given.get("database_url")
    if address is not None:
        kind = parse_server_kind(address)
        asked, allowed = f"`{address.key}` asks for a server of {kind.title}", (kind.engine,)
    else:
        kind = POSTGRES if _is_engine(engine, POSTGRES.engine) else SURREAL
        asked, allowed = f"`{mode.key}` asks for a server", (SURREAL.engine, POSTGRES.engine)
    if engine is not None and engine.value in get_args(Engine) and engine.value not in allowed:
        embedded = ", or set deployment_mode to embedded-file" * _is_engine(engine, "sqlite")
        raise engine.build_refusal(f"{asked}. Remove one of them{embedded}.", allowed)
    return kind


def _choose_address(asker: GivenSetting, given: Mapping[str, GivenSetting], kind: ServerKind) -> GivenSetting:
    """Return the given address, or the default address of such a server."""
    address = given.get("database_url")
    if address is not None:
        return address
    if kind.local is None or asker.value != "local-server":
        names = "`database_url` or EVERKEPT_DATABASE_URL"
        if kind is SURREAL:
            names = "`database_url`, `remote_url`, EVERKEPT_DATABASE_URL or MEMORY_REMOTE_URL"
        raise asker.build_invalid(
            f"it needs the address of a server. Set {names} to an address such as {kind.examples[-1]}."
        )
    return GivenSetting("database_url", kind.local, asker.key, f"default of {asker.value}")


def _check_credentials(given: Mapping[str, GivenSetting], address: GivenSetting, kind: ServerKind) -> None:
    user, password = given.get("database_user"), given.get("database_password")
    for item in (user, password):
        if item is not None and item.value == "":
            raise item.build_invalid("it must not be empty.")
    if password is not None and user is None:
        raise password.build_invalid("it needs a user. Set database_user.")
    if kind is POSTGRES:  # which requires a user, and sometimes a password
        if user is None:
            raise address.build_invalid(f"{kind.title} needs a user. Pass --database-user, or set database_user.")
    elif user is not None and password is None:
        # The user of an address may be a secret, and is not shown.
        raise (address if user.key == address.key else user).build_invalid(
            f"it needs a password. Set {PASSWORD_PLACES}."
        )


def _require_file(ca: GivenSetting) -> GivenSetting:
    path: Path = parse_setting(Path, ca)
    if not is_existing(path):
        raise ca.build_invalid(f"cannot find the file {path}.")
    return ca._replace(value=str(path.absolute()))


def _check_address_is_named(given: Mapping[str, GivenSetting]) -> None:
    """Refuse database settings without a server.

    A flag or variable may be for a command that names a server itself. Next to an embedded mode, they are leftovers of
    a file.
    """
    for item in (given[name] for name in SERVER_SETTINGS if name in given):
        if item.file is not None:
            raise item.build_refusal(
                "it belongs to a database server, and none is set. Set database_url or deployment_mode, or remove it."
            )


def _check_names(settings: Mapping[str, GivenSetting]) -> None:
    """Check the names of databases. With SQLite, only the default is allowed."""
    engine = settings.get("engine")
    for name, usual in DEFAULT_NAMES.items():
        item = settings.get(name)
        if item is None or (name == "database" and _is_engine(engine, POSTGRES.engine)):
            continue  # part of the address, and checked with it
        if engine is None and item.value != usual:
            raise item.build_refusal(
                f"it can only be {usual} here, because SQLite has a file for each project. "
                "Set engine to surreal or postgres, or remove it.",
                (usual,),
            )
        if not re.fullmatch(_NAME, str(item.value)):
            raise item.build_invalid("it must be 1 to 64 letters, digits, `_` and `-`.")
        if name == "namespace" and _is_engine(engine, POSTGRES.engine):
            check_schema(item)
        if name == "database" and (store := re.fullmatch(_STORE_NAME, str(item.value))):
            raise item.build_refusal(
                f"such a name is reserved for a part of the database {store['whole']!r}. Use another one."
            )


def _is_engine(engine: GivenSetting | None, name: str) -> bool:
    return engine is not None and engine.value == name


Transport = Literal["stdio", "http"]
Dialect = Literal["everkept", "server-memory", "anthropic-memory"]
LogLevel = Literal["debug", "info", "warning", "error"]
Synchronous = Literal["normal", "full"]
ViewChoice = Literal["off", "quiet", "all"]
BankMode = Literal["architect", "ask", "code", "debug", "test"]

OWN_TOOLSETS = ("memories", "graph", "history", "bank")
GATEWAY = "gateway"
TOOLSETS = (*OWN_TOOLSETS, GATEWAY)
DIALECT_TOOLSETS = {"server-memory": ("graph",), "anthropic-memory": ("bank",)}  # of the other dialects
# The list of tools costs context in every conversation, so not all are offered by default.
DEFAULT_TOOLSETS = ("memories", "graph", "history")


class Settings(Value):
    """Every setting with its default. The comments are the text of docs/settings.md."""

    #: Folder that holds all data. Default: the platform's data folder.
    data_dir: Path
    #: File to read settings from, or `none`. Default: `config.md` in the config folder.
    config: Path | None = None
    #: Project to use, created at the first write; `auto` uses the project of the working folder.
    project: str | None = None
    #: The only project that the server shows, whatever a call names. Implies `project`.
    only_project: str | None = None
    #: Working folder. Default: CLAUDE_PROJECT_DIR, otherwise the current folder; none over HTTP.
    path: Path | None = None
    #: Database engine. The extras `surreal` and `postgres` install what those two need.
    engine: Engine = "sqlite"
    #: Store in the data folder, in memory until the program ends, or on a database server.
    deployment_mode: DeploymentMode = "embedded-file"
    #: Server address: wss://HOST or postgresql://HOST/NAME. Implies its engine. Also `remote_url`.
    database_url: str | None = None
    #: User of the database server. In a file also `remote_user`.
    database_user: str | None = None
    #: Password of that user; without a flag. In a file also `remote_pass`.
    database_password: str | None = field(default=None, repr=False)
    #: File with certificates to trust, if the database server has a self-signed one.
    database_ca: Path | None = None
    #: SurrealDB: the namespace of the databases. PostgreSQL: the schema of the tables.
    namespace: str = "memory"
    #: SurrealDB: the database. PostgreSQL: the database if `database_url` names none.
    database: str = "default"
    #: Time limit in seconds for one query of a database server.
    database_timeout: float = 10.0
    #: Toolsets, separated by commas, or `all`. Bank settings and a gateway file add theirs.
    toolsets: str = ",".join(DEFAULT_TOOLSETS)
    #: Offer only tools that change nothing.
    read_only: bool = False
    #: Names and formats of the tools: Everkept's, the official memory server's, or Anthropic's memory tool.
    dialect: Dialect = "everkept"
    #: Views that clients with MCP Apps can draw in a chat: `off`, `quiet` for all but memories, or `all`.
    views: ViewChoice = "quiet"
    #: How clients connect.
    transport: Transport = "stdio"
    #: Address that the HTTP transport listens on.
    host: str = "127.0.0.1"
    #: Port that the HTTP transport listens on.
    port: int = 8081
    #: Serve HTTP on the loopback address without a token.
    no_token: bool = False
    #: HTTP: requests per minute for each token of an account; 0 for no limit.
    rate_limit: int = 600
    #: HTTP: proxies whose `X-Forwarded-For` is trusted: addresses or networks, separated by commas.
    trusted_proxies: str = ""
    #: Accounts: open sessions of each token. Another one ends the one that was idle longest.
    quota_sessions: int = 100
    #: Accounts: hours after which an idle session ends.
    quota_session_hours: float = 8.0
    #: Accounts: requests of one account that are under way.
    quota_calls: int = 100
    #: Accounts: bytes of one answer.
    quota_answer_bytes: int = 16 * 1024 * 1024
    #: Accounts: projects that an account may create; 0 for any number.
    quota_projects: int = 100
    #: Accounts: records and links of one project, beyond which an account cannot add any; 0 for any number.
    quota_project_records: int = 100_000
    #: Accounts: bytes of one project, beyond which an account cannot add any; 0 for any number.
    quota_project_bytes: int = 1024**3
    #: Accounts: records and links of one account's data and projects; 0 for any number.
    quota_account_records: int = 200_000
    #: Accounts: bytes of one account's data and projects; 0 for any number.
    quota_account_bytes: int = 2 * 1024**3
    #: HTTP: open connections; 0 for half of the descriptors that the system allows.
    max_connections: int = 0
    #: HTTP: open connections of one address; 0 for a fourth of `max_connections`.
    max_connections_per_address: int = 0
    #: HTTP: seconds in which the headers of a request must arrive.
    header_timeout: float = 10.0
    #: HTTP: seconds in which the body of a request must arrive.
    body_timeout: float = 60.0
    #: HTTP: seconds after which a connection without a request is closed.
    idle_timeout: float = 75.0
    #: HTTP: seconds in which a client must read some of a waiting answer.
    send_timeout: float = 30.0
    #: HTTP: PEM file with the server's certificate. Turns HTTPS on.
    certificate: Path | None = None
    #: HTTP: PEM file with the key of the certificate. Default: the file of the certificate.
    certificate_key: Path | None = None
    #: HTTP: address of the OpenID provider whose tokens are accepted too. Needs `oauth_resource` and the extra `oauth`.
    oauth_issuer: str | None = None
    #: HTTP: address of this server as clients know it, such as https://memory.example.com/mcp.
    oauth_resource: str | None = None
    #: HTTP: audience that tokens of the provider must name. Default: `oauth_resource`.
    oauth_audience: str | None = None
    #: HTTP: show counters to the owner at `/metrics`, for Prometheus.
    metrics: bool = False
    #: HTTP: offer the console at `/console`, which the browser opens with a one-time code or a token.
    console: bool = False
    #: Days that a deleted project can be restored; 0 keeps it until it is purged.
    trash_days: int = 30
    #: Session that memories belong to. Default: CLAUDE_CODE_SESSION_ID, otherwise a new one.
    session_id: str | None = None
    #: Automatic memories that one session may store. Explicit ones beyond it get a warning.
    max_memories_per_session: int = 100
    #: Write a summary of the session when the server ends.
    consolidation_on_shutdown: bool = True
    #: Store candidates of `everkept review` as automatic memories when a session ends.
    keep_candidates: bool = False
    #: Let an assistant's hooks add context and store what happened.
    hooks: bool = True
    #: Hooks: maximum context tokens at the start of a session.
    session_token_budget: int = 2000
    #: Hooks: maximum context tokens for one prompt.
    prompt_token_budget: int = 1500
    #: Hooks: store failures and edits automatically, as memories that fade.
    automatic_memories: bool = True
    #: Model for search by meaning: the shipped one, a folder with another, or `none`.
    embedding_model: str = SHIPPED_MODEL
    #: Replace keys, tokens and passwords in texts before they are stored.
    mask_secrets: bool = True
    #: Seconds after which a search returns what it has found so far.
    recall_time_limit: float = 2.0
    #: History: folders to exclude, separated by commas; `*` matches any characters.
    history_exclude: str = ""
    #: Memory bank: the mode at the start.
    mode: BankMode = "code"
    #: Memory bank: name of its folder inside the working folder.
    folder: str = "memory-bank"
    #: Memory bank: author of entries; a name or the address of a GitHub profile. Default: git's `user.name`.
    username: str | None = None
    #: Memory bank: offer eight more tools.
    bank_extras: bool = False
    #: Memory bank: offer only the tools of the mode at the start.
    mode_tools: bool = False
    #: Memory bank: use a bank on another machine over SSH. Needs the next three settings.
    remote: bool = False
    #: Memory bank on another machine: the user there. The flag is `--remote-user`.
    ssh_user: str | None = None
    #: Memory bank on another machine: its host name, with `:port` if needed. `--remote-host`.
    ssh_host: str | None = None
    #: Memory bank on another machine: folder of the project, or of the bank. `--remote-path`.
    ssh_path: str | None = None
    #: Private key for SSH. Default: the keys of the agent and of `~/.ssh`.
    ssh_key: Path | None = None
    #: File with known host keys. Default: `~/.ssh/known_hosts`.
    known_hosts: Path | None = None
    #: Gateway: file that defines its tools, or `none`. Default: `tools.json` in the config folder.
    gateway_config: Path | None = None
    #: What an acknowledged commit survives: `full` also a power cut, `normal` any crash.
    synchronous: Synchronous = "normal"
    #: Level of messages on standard error.
    log_level: LogLevel = "warning"
    #: Command that clients should start, if not this program. `./run` sets it.
    launcher: str | None = None
