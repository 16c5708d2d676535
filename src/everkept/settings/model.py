"""Every setting, with its default."""

from pathlib import Path
from typing import Literal

from everkept.settings.storage import DeploymentMode, Engine
from everkept.values import Value, field

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
