"""Every setting, with its default, and those that follow from each other or do not go together."""

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
    is_loopback,
    parse_server_kind,
    split_address,
    with_database,
)
from everkept.settings.setting_values import GivenSetting, parse_setting
from everkept.values import Value, field

Engine = Literal["sqlite", "surreal", "postgres"]
DeploymentMode = Literal["embedded-file", "embedded-memory", "local-server", "remote"]

EMBEDDED_MODES = ("embedded-file", "embedded-memory")
SERVER_MODES = ("local-server", "remote")
SERVER_SETTINGS = ("database_url", "database_user", "database_password", "database_ca")
DEFAULT_NAMES = {"namespace": "memory", "database": "default"}

# Not compiled before there is a name to check: most starts have none.
_NAME = r"[A-Za-z0-9_-]{1,64}"
# Each store has a database of its own, which is named after the configured one.
_STORE_NAME = r"(?P<whole>.+)_(?:user|history|[0-9a-f]{32})"


def complete_settings(
    given: Mapping[str, GivenSetting], in_body: Sequence[GivenSetting]
) -> tuple[dict[str, GivenSetting], list[GivenSetting]]:
    """The settings with what follows from them, and an address that is not used.

    An address in the body of a file counts only where the mode or the engine asks for one.
    """
    settings = {item.name: item for item in in_body} | dict(given)
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
    """The one that was given, or that follows from what was."""
    address, mode, engine = (given.get(name) for name in ("database_url", "deployment_mode", "engine"))
    if address is not None and (mode is None or _is_for_this_run(address, mode)):
        return _imply_mode(address)
    if engine is None or not _is_engine(engine, POSTGRES.engine):
        return mode
    if mode is not None and mode.value in EMBEDDED_MODES:
        raise engine.build_refusal(
            f"{POSTGRES.title} is always a server, and `{mode.key}` is {mode.value}. Leave one of them out."
        )
    if mode is None:
        return _imply_mode(_choose_address(engine, settings, POSTGRES))
    return mode


def _is_for_this_run(address: GivenSetting, mode: GivenSetting) -> bool:
    """Then it is no leftover of another mode, as it would be in a file or a variable."""
    return address.is_flag and not mode.is_flag and mode.value in EMBEDDED_MODES


def _imply_mode(address: GivenSetting) -> GivenSetting:
    is_local = is_loopback(split_address(address).hostname or "")
    mode = "local-server" if is_local else "remote"
    return GivenSetting("deployment_mode", mode, address.key, f"follows from {address.key}")


def _complete_server(given: dict[str, GivenSetting], mode: GivenSetting) -> dict[str, GivenSetting]:
    kind, engine = _choose_kind(given, mode), given.get("engine")
    address = _choose_address(mode, given, kind)
    completed = {
        "deployment_mode": mode,
        "engine": engine or GivenSetting("engine", kind.engine, mode.key, f"follows from {mode.key}"),
        "database_url": address._replace(value=split_address(address).geturl()),
    }
    if kind is POSTGRES:
        completed |= with_database(given, address)
    _check_credentials(given, address, kind)
    if ca := given.get("database_ca"):
        completed["database_ca"] = _require_file(ca)
    return given | completed


def _choose_kind(given: Mapping[str, GivenSetting], mode: GivenSetting) -> ServerKind:
    """Raises Refused where the engine is not one of the server that is asked for."""
    engine, address = given.get("engine"), given.get("database_url")
    if address is not None:
        kind = parse_server_kind(address)
        asked, allowed = f"`{address.key}` asks for a server of {kind.title}", (kind.engine,)
    else:
        kind = POSTGRES if _is_engine(engine, POSTGRES.engine) else SURREAL
        asked, allowed = f"`{mode.key}` asks for a server", (SURREAL.engine, POSTGRES.engine)
    if engine is not None and engine.value in get_args(Engine) and engine.value not in allowed:
        embedded = ", or set deployment_mode to embedded-file" * _is_engine(engine, "sqlite")
        raise engine.build_refusal(f"{asked}. Leave one of them out{embedded}.", allowed)
    return kind


def _choose_address(asker: GivenSetting, given: Mapping[str, GivenSetting], kind: ServerKind) -> GivenSetting:
    """The one that was given, or where such a server listens."""
    address = given.get("database_url")
    if address is not None:
        return address
    if kind.local is None or asker.value != "local-server":
        raise asker.build_invalid(f"it needs the address of a server: set database_url, as in {kind.examples[-1]}.")
    return GivenSetting("database_url", kind.local, asker.key, f"default of {asker.value}")


def _check_credentials(given: Mapping[str, GivenSetting], address: GivenSetting, kind: ServerKind) -> None:
    user, password = given.get("database_user"), given.get("database_password")
    for item in (user, password):
        if item is not None and item.value == "":
            raise item.build_invalid("it must not be empty.")
    if password is not None and user is None:
        raise password.build_invalid("it needs a user: set database_user.")
    if kind is POSTGRES:  # which lets nobody in without a name, and some without a password
        if user is None:
            raise address.build_invalid(
                f"{kind.title} lets in nobody unnamed. Name the user: --database-user, or the setting database_user."
            )
    elif user is not None and password is None:
        raise user.build_invalid(f"it needs a password: set {PASSWORD_PLACES}.")


def _require_file(ca: GivenSetting) -> GivenSetting:
    path: Path = parse_setting(Path, ca)
    if not is_existing(path):
        raise ca.build_invalid(f"there is no file {path}.")
    return ca._replace(value=str(path.absolute()))


def _check_address_is_named(given: Mapping[str, GivenSetting]) -> None:
    """A flag or a variable may be for a command that names a server itself. Beside an embedded
    mode they are the rest of a file that once had another."""
    for item in (given[name] for name in SERVER_SETTINGS if name in given):
        if item.file is not None:
            raise item.build_refusal(
                "it belongs to a database server, and none is named. Set database_url, or "
                "deployment_mode to local-server; or leave it out."
            )


def _check_names(settings: Mapping[str, GivenSetting]) -> None:
    """Whoever says that it is SQLite knows that it has no such names."""
    engine = settings.get("engine")
    for name, usual in DEFAULT_NAMES.items():
        item = settings.get(name)
        if item is None or (name == "database" and _is_engine(engine, POSTGRES.engine)):
            continue  # that one is part of the address, and was checked with it
        if engine is None and item.value != usual:
            raise item.build_refusal(
                f"it can only be {usual} here: SQLite keeps a file for each project. "
                "Set engine to surreal or postgres, or leave it out.",
                (usual,),
            )
        if not re.fullmatch(_NAME, str(item.value)):
            raise item.build_invalid("it must be 1 to 64 letters, digits, `_` and `-`.")
        if name == "namespace" and _is_engine(engine, POSTGRES.engine):
            check_schema(item)
        if name == "database" and (store := re.fullmatch(_STORE_NAME, str(item.value))):
            raise item.build_refusal(
                f"such a name is kept for what belongs to a database {store['whole']!r}. Choose another."
            )


def _is_engine(engine: GivenSetting | None, name: str) -> bool:
    return engine is not None and engine.value == name


Transport = Literal["stdio", "http"]
Dialect = Literal["everkept", "server-memory"]
LogLevel = Literal["debug", "info", "warning", "error"]
Synchronous = Literal["normal", "full"]
EmbeddingModel = Literal["all-MiniLM-L6-v2", "none"]
BankMode = Literal["architect", "ask", "code", "debug", "test"]

OWN_TOOLSETS = ("memories", "graph", "history", "bank")
GATEWAY = "gateway"
TOOLSETS = (*OWN_TOOLSETS, GATEWAY)
# A list of tools stands in every conversation's context, so not all are offered unasked.
DEFAULT_TOOLSETS = ("memories", "graph", "history")


class Settings(Value):
    """Every setting, with its default. The comments are the text of docs/settings.md."""

    #: Folder that holds all data; made when missing. Default: the platform's data folder.
    data_dir: Path
    #: File to read settings from, `none` for no file. Default: `config.md` in the config folder.
    config: Path | None = None
    #: Project to work in, made at the first write; `auto` takes the one of the working folder.
    project: str | None = None
    #: Working folder. Default: CLAUDE_PROJECT_DIR, else the current one; over HTTP none.
    path: Path | None = None
    #: What keeps everything; the extras `surreal` and `postgres` install what two of them need.
    engine: Engine = "sqlite"
    #: In the data folder, in memory until the program ends, or with a database server.
    deployment_mode: DeploymentMode = "embedded-file"
    #: A server, as wss://HOST or postgresql://HOST/NAME: implies its engine. Or `remote_url`.
    database_url: str | None = None
    #: User of the database server; in a file `remote_user` too.
    database_user: str | None = None
    #: Password of that user; it has no flag. In a file `remote_pass` too.
    database_password: str | None = field(default=None, repr=False)
    #: File with certificates to trust, where the database server has one of its own making.
    database_ca: Path | None = None
    #: SurrealDB: the namespace that holds the databases. PostgreSQL: the schema with the tables.
    namespace: str = "memory"
    #: SurrealDB: the database. PostgreSQL: the one to use where `database_url` names none.
    database: str = "default"
    #: Seconds that one query of a database server may take.
    database_timeout: float = 10.0
    #: Toolsets, with commas, or `all`. Settings of the bank and a gateway's file add theirs.
    toolsets: str = ",".join(DEFAULT_TOOLSETS)
    #: Offer only the tools that change nothing.
    read_only: bool = False
    #: Names and shapes of the tools: our own, or those of the official memory server.
    dialect: Dialect = "everkept"
    #: How clients connect.
    transport: Transport = "stdio"
    #: Address that the HTTP transport listens on.
    host: str = "127.0.0.1"
    #: Port that the HTTP transport listens on.
    port: int = 8081
    #: Serve HTTP on the loopback address without asking for a token.
    no_token: bool = False
    #: HTTP: requests a minute that each token of an account may make; 0 for any number.
    rate_limit: int = 600
    #: HTTP: proxies in front whose `X-Forwarded-For` counts: addresses or networks, with commas.
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
    #: Accounts: records and links in one project up to which they may add some; 0 for any number.
    quota_project_records: int = 100_000
    #: Accounts: bytes of one project up to which they may add some; 0 for any number.
    quota_project_bytes: int = 1024**3
    #: Accounts: records and links in all that belongs to one account; 0 for any number.
    quota_account_records: int = 200_000
    #: Accounts: bytes of all that belongs to one account; 0 for any number.
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
    #: HTTP: file in PEM with the server's certificate; with it HTTPS is spoken.
    certificate: Path | None = None
    #: HTTP: file in PEM with the key of the certificate. Default: the file of the certificate.
    certificate_key: Path | None = None
    #: HTTP: tell the owner at `/metrics` what is counted, for Prometheus.
    metrics: bool = False
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
