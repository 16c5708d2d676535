"""Where each client keeps its configuration on this machine."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from everkept.errors import InvalidInput
from everkept.values import Value

Scope = Literal["user", "project"]
Syntax = Literal["json", "toml"]

CLAUDE_CODE = "claude-code"
CLIENTS = (CLAUDE_CODE, "claude-desktop", "codex", "cursor", "gemini", "vscode", "windsurf")


class Places(Value):
    """What decides where files are. `platform` as in `sys.platform`; `project` is its folder.

    `launchers` as in `programs.arguments`, for whoever looks into the files.
    """

    environment: Mapping[str, str]
    home: Path
    platform: str
    project: Path
    launchers: Collection[str] = ()


class Client(Value):
    """A program that starts MCP servers, and the files that tell it which."""

    name: str
    title: str
    signs: tuple[Path, ...]  # where one of these is, the program is installed
    user_file: Path
    check: str  # how its user sees that it works
    project_file: Path | None = None
    servers: str = "mcpServers"  # the table of servers in the file
    syntax: Syntax = "json"
    names_transport: bool = False  # an entry says that it is of the type `stdio`
    user_hooks_file: Path | None = None
    project_hooks_file: Path | None = None

    @property
    def is_installed(self) -> bool:
        return any(_is_there(sign) for sign in self.signs)

    def file(self, scope: Scope) -> Path:
        """InvalidInput for a client that has no file in its projects."""
        if scope == "user":
            return self.user_file
        if self.project_file is None:
            raise InvalidInput(
                f"{self.title} has no configuration in a project.",
                hint="Leave --scope out: the user's own configuration counts in every project.",
                argument="scope",
                value=scope,
            )
        return self.project_file

    def hooks_file(self, scope: Scope) -> Path | None:
        return self.user_hooks_file if scope == "user" else self.project_hooks_file


def clients(places: Places) -> list[Client]:
    """In the order of their names."""
    applications = _applications(places)
    return [
        _claude_code(places),
        Client(
            "claude-desktop",
            "Claude Desktop",
            signs=(applications / "Claude",),
            user_file=applications / "Claude" / "claude_desktop_config.json",
            check="Quit Claude Desktop and start it again; Settings > Developer lists everkept.",
        ),
        _codex(places),
        Client(
            "cursor",
            "Cursor",
            signs=(places.home / ".cursor", applications / "Cursor"),
            user_file=places.home / ".cursor" / "mcp.json",
            project_file=places.project / ".cursor" / "mcp.json",
            check="Restart Cursor; its settings for MCP list everkept with its tools.",
        ),
        _gemini(places),
        Client(
            "vscode",
            "VS Code",
            signs=(applications / "Code",),
            user_file=applications / "Code" / "User" / "mcp.json",
            project_file=places.project / ".vscode" / "mcp.json",
            servers="servers",
            names_transport=True,
            check="In VS Code run the command `MCP: List Servers`; it shows everkept.",
        ),
        Client(
            "windsurf",
            "Windsurf",
            signs=(places.home / ".codeium" / "windsurf",),
            user_file=places.home / ".codeium" / "windsurf" / "mcp_config.json",
            check="Restart Windsurf; Cascade lists everkept among its MCP servers.",
        ),
    ]


def client_named(name: str, places: Places) -> Client:
    for client in clients(places):
        if client.name == name:
            return client
    raise InvalidInput(
        f'There is no client "{name}".',
        hint=f"The clients are {', '.join(CLIENTS)}.",
        argument="client",
        value=name,
        allowed=list(CLIENTS),
    )


def _claude_code(places: Places) -> Client:
    named = _named(places.environment, "CLAUDE_CONFIG_DIR")
    folder = named or places.home / ".claude"
    # Beside its folder, unless a variable names the folder: then inside it.
    file = (named or places.home) / ".claude.json"
    return Client(
        CLAUDE_CODE,
        "Claude Code",
        signs=(folder, file),
        user_file=file,
        project_file=places.project / ".mcp.json",
        names_transport=True,
        user_hooks_file=folder / "settings.json",
        project_hooks_file=places.project / ".claude" / "settings.json",
        check="Start a new session: `/mcp` shows everkept as connected, and so does "
        "`claude mcp list`.",
    )


def _codex(places: Places) -> Client:
    folder = _named(places.environment, "CODEX_HOME") or places.home / ".codex"
    return Client(
        "codex",
        "Codex",
        signs=(folder,),
        user_file=folder / "config.toml",
        project_file=places.project / ".codex" / "config.toml",
        servers="mcp_servers",
        syntax="toml",
        check="Start Codex anew: `/mcp` shows everkept, and so does `codex mcp list`.",
    )


def _gemini(places: Places) -> Client:
    folder = (_named(places.environment, "GEMINI_CLI_HOME") or places.home) / ".gemini"
    return Client(
        "gemini",
        "Gemini CLI",
        signs=(folder,),
        user_file=folder / "settings.json",
        project_file=places.project / ".gemini" / "settings.json",
        check="Start Gemini CLI anew in a folder that you trust: `/mcp` shows everkept.",
    )


def _applications(places: Places) -> Path:
    """The folder in which programs with windows keep theirs."""
    if places.platform == "win32":
        return _named(places.environment, "APPDATA") or places.home / "AppData" / "Roaming"
    if places.platform == "darwin":
        return places.home / "Library" / "Application Support"
    return _named(places.environment, "XDG_CONFIG_HOME") or places.home / ".config"


def _named(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    path = Path(value)
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # of a user whose home is not known
        return path.absolute()


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that may not be looked into
        return False
