"""Configuration files of other programs: their places, values and replacement, and the projects that have one."""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from everkept.core import disk
from everkept.errors import EverkeptError, InvalidInput, ReadOnly, Refused, StorageFull, Unavailable, escape_name
from everkept.values import Value, field

Key = str | int


class UnexpectedShape(ValueError):
    """The file can be read, but its structure has no place for our entry."""


def format_key_path(path: Sequence[Key]) -> str:
    return ".".join(str(key) for key in path)


def as_object(value: Any, path: Sequence[Key] = ()) -> Mapping[str, Any]:
    """Return the object, or raise UnexpectedShape. `path` is its position."""
    if not isinstance(value, Mapping):
        raise UnexpectedShape(f"{format_key_path(path) or 'the whole file'} is not an object")
    return cast(Mapping[str, Any], value)


def as_list(value: Any, path: Sequence[Key]) -> list[Any]:
    if not isinstance(value, list):
        raise UnexpectedShape(f"{format_key_path(path)} is not a list")
    return cast(list[Any], value)


def with_entry(values: Any, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the named one replaced, or removed if it would be empty."""
    rest = {key: item for key, item in as_object(values).items() if key != name}
    return {**rest, name: value} if value else rest


def is_same(one: Any, other: Any) -> bool:
    """Return whether values are equal, including NaN, which never equals itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        left, right = cast(Mapping[str, Any], one), cast(Mapping[str, Any], other)
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    if isinstance(one, list) and isinstance(other, list):
        left, right = cast(list[Any], one), cast(list[Any], other)
        return len(left) == len(right) and all(map(is_same, left, right))
    return repr(cast(object, one)) == repr(cast(object, other))


ConfigScope = Literal["user", "project"]
ConfigSyntax = Literal["json", "toml"]

CLAUDE_CODE = "claude-code"
CLIENTS = (CLAUDE_CODE, "claude-desktop", "codex", "copilot", "cursor", "gemini", "opencode", "vscode", "windsurf")


class ClientEnvironment(Value):
    """Facts that decide where files are. `platform` is as in `sys.platform`; `project` is a folder.

    `launchers` is as in `own_command.find_arguments`.
    """

    environment: Mapping[str, str]
    home: Path
    platform: str
    project: Path
    launchers: Collection[str] = ()


class ClientProgram(Value):
    """Program that starts MCP servers, and its configuration files."""

    name: str
    title: str
    signs: tuple[Path, ...]  # the program is installed if one of these exists
    user_file: Path
    check: str  # how its user verifies the connection
    project_file: Path | None = None
    servers: str = "mcpServers"  # name of the table of servers in the file
    syntax: ConfigSyntax = "json"
    entry_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of an entry, besides command and args
    has_joined_command: bool = False  # the list `command` has the arguments too
    user_hooks_file: Path | None = None
    project_hooks_file: Path | None = None
    hooks_check: str = ""  # what its user must do before it runs our hooks
    program: Path | None = None  # its command on the PATH
    workspace_variable: str = ""  # what it replaces with the open folder, if it starts servers elsewhere

    @property
    def is_installed(self) -> bool:
        return self.program is not None or any(_exists(sign) for sign in self.signs)

    def get_file(self, scope: ConfigScope) -> Path:
        """Return the file. Raise InvalidInput for a client without project files."""
        if scope == "user":
            return self.user_file
        if self.project_file is None:
            raise InvalidInput(
                f"{self.title} does not have a configuration in projects.",
                hint="Omit --scope. The user's own configuration applies to every project.",
                argument="scope",
                value=scope,
            )
        return self.project_file

    def get_hooks_file(self, scope: ConfigScope) -> Path | None:
        return self.user_hooks_file if scope == "user" else self.project_hooks_file


_STDIO = {"type": "stdio"}
_COPILOT_HOOKS = Path("hooks", "everkept.json")  # in the folder of Copilot; VS Code reads it too


def list_clients(places: ClientEnvironment) -> list[ClientProgram]:
    """Return the clients sorted by name."""
    applications = _get_applications_folder(places)
    return [
        _build_claude_code(places),
        ClientProgram(
            "claude-desktop",
            "Claude Desktop",
            signs=(applications / "Claude",),
            user_file=applications / "Claude" / "claude_desktop_config.json",
            check="Quit Claude Desktop and start it again. Settings > Developer lists everkept.",
        ),
        _build_codex(places),
        _build_copilot(places),
        ClientProgram(
            "cursor",
            "Cursor",
            signs=(places.home / ".cursor", applications / "Cursor"),
            user_file=places.home / ".cursor" / "mcp.json",
            project_file=places.project / ".cursor" / "mcp.json",
            user_hooks_file=places.home / ".cursor" / "hooks.json",
            program=_find_program("cursor", places),
            workspace_variable="${workspaceFolder}",
            check="Restart Cursor. Its MCP settings list everkept with its tools.",
        ),
        _build_gemini(places),
        _build_opencode(places),
        ClientProgram(
            "vscode",
            "VS Code",
            signs=(applications / "Code",),
            user_file=applications / "Code" / "User" / "mcp.json",
            project_file=places.project / ".vscode" / "mcp.json",
            servers="servers",
            entry_fields=_STDIO,
            user_hooks_file=_get_copilot_folder(places) / _COPILOT_HOOKS,
            program=_find_program("code", places),
            check="In VS Code, run the command `MCP: List Servers`. It shows everkept.",
        ),
        ClientProgram(
            "windsurf",
            "Windsurf",
            signs=(places.home / ".codeium" / "windsurf",),
            user_file=places.home / ".codeium" / "windsurf" / "mcp_config.json",
            program=_find_program("windsurf", places),
            check="Restart Windsurf. Cascade lists everkept among its MCP servers.",
        ),
    ]


def get_client(name: str, places: ClientEnvironment) -> ClientProgram:
    for client in list_clients(places):
        if client.name == name:
            return client
    raise InvalidInput(
        f'Unknown client "{name}".',
        hint=f"The clients are {', '.join(CLIENTS)}.",
        argument="client",
        value=name,
        allowed=list(CLIENTS),
    )


def _build_claude_code(places: ClientEnvironment) -> ClientProgram:
    named = _get_variable_path(places.environment, "CLAUDE_CONFIG_DIR")
    folder = named or places.home / ".claude"
    # Next to its folder, unless a variable names the folder. Then inside it.
    file = (named or places.home) / ".claude.json"
    return ClientProgram(
        CLAUDE_CODE,
        "Claude Code",
        signs=(folder, file),
        user_file=file,
        project_file=places.project / ".mcp.json",
        entry_fields=_STDIO,
        user_hooks_file=folder / "settings.json",
        project_hooks_file=places.project / ".claude" / "settings.json",
        program=_find_program("claude", places),
        check="Start a new session. `/mcp` and `claude mcp list` show everkept as connected.",
    )


def _build_codex(places: ClientEnvironment) -> ClientProgram:
    folder = _get_variable_path(places.environment, "CODEX_HOME") or places.home / ".codex"
    return ClientProgram(
        "codex",
        "Codex",
        signs=(folder,),
        user_file=folder / "config.toml",
        project_file=places.project / ".codex" / "config.toml",
        servers="mcp_servers",
        syntax="toml",
        user_hooks_file=folder / "hooks.json",
        hooks_check="Codex skips hooks that you have not trusted. Run `/hooks` in Codex, and trust those of everkept.",
        program=_find_program("codex", places),
        check="Restart Codex. `/mcp` and `codex mcp list` show everkept.",
    )


def _get_copilot_folder(places: ClientEnvironment) -> Path:
    return _get_variable_path(places.environment, "COPILOT_HOME") or places.home / ".copilot"


def _build_copilot(places: ClientEnvironment) -> ClientProgram:
    folder = _get_copilot_folder(places)
    return ClientProgram(
        "copilot",
        "Copilot CLI",
        # Not its folder, which also exists if only VS Code has hooks in it.
        signs=(folder / "config.json", folder / "settings.json", folder / "session-state"),
        user_file=folder / "mcp-config.json",
        entry_fields={"type": "local", "tools": ["*"]},
        user_hooks_file=folder / _COPILOT_HOOKS,
        program=_find_program("copilot", places),
        check="Restart Copilot CLI. `/mcp show` lists everkept.",
    )


def _build_gemini(places: ClientEnvironment) -> ClientProgram:
    folder = (_get_variable_path(places.environment, "GEMINI_CLI_HOME") or places.home) / ".gemini"
    return ClientProgram(
        "gemini",
        "Gemini CLI",
        signs=(folder,),
        user_file=folder / "settings.json",
        project_file=places.project / ".gemini" / "settings.json",
        user_hooks_file=folder / "settings.json",
        program=_find_program("gemini", places),
        check="Restart Gemini CLI in a folder that you trust. `/mcp` shows everkept.",
    )


def _build_opencode(places: ClientEnvironment) -> ClientProgram:
    # On all systems, unlike other programs.
    folder = (_get_variable_path(places.environment, "XDG_CONFIG_HOME") or places.home / ".config") / "opencode"
    return ClientProgram(
        "opencode",
        "OpenCode",
        signs=(folder,),
        user_file=_choose_opencode_file(folder),
        project_file=_choose_opencode_file(places.project),
        servers="mcp",
        entry_fields={"type": "local", "enabled": True},
        has_joined_command=True,
        program=_find_program("opencode", places),
        check="Restart OpenCode. `opencode mcp list` shows everkept as connected.",
    )


def _choose_opencode_file(folder: Path) -> Path:
    """Return the file with comments if it exists. OpenCode reads both."""
    commented = folder / "opencode.jsonc"
    return commented if _exists(commented) else folder / "opencode.json"


def _find_program(name: str, places: ClientEnvironment) -> Path | None:
    """Return the command of a client. A new client has no files before its first start."""
    found = shutil.which(name, path=places.environment.get("PATH", ""))
    return None if found is None else Path(found)


def _get_applications_folder(places: ClientEnvironment) -> Path:
    """Return the folder in which desktop programs keep their data."""
    if places.platform == "win32":
        return _get_variable_path(places.environment, "APPDATA") or places.home / "AppData" / "Roaming"
    if places.platform == "darwin":
        return places.home / "Library" / "Application Support"
    return _get_variable_path(places.environment, "XDG_CONFIG_HOME") or places.home / ".config"


def _get_variable_path(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    path = Path(value)
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # of a user whose home is unknown
        return path.absolute()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder without permission to list
        return False


BACKUP_INFIX = ".everkept-backup-"
_SHARED_FILE_MODE = 0o644
_BYTE_ORDER_MARK = "\ufeff"  # which some Windows editors put before a text


class ConfigFileContent(Value):
    """Content of a file; `text` is without a byte order mark."""

    raw: bytes
    text: str
    has_mark: bool

    def encode_text(self, text: str) -> bytes:
        return (_BYTE_ORDER_MARK if self.has_mark else "").encode("utf-8") + text.encode("utf-8")


MAX_FILE_BYTES = 16 * 1024 * 1024  # some clients store more than settings in it
EMPTY_CONTENT = ConfigFileContent(b"", "", has_mark=False)


def read_config_file(file: Path) -> ConfigFileContent | None:
    """Return None if the file does not exist. Raise Refused if it is not a readable text file."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Refused(f"{_format_path(file)} is not a file.", hint="Move it away, then try again.")
        raw = disk.read_limited(file, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise Refused(
            f"{_format_path(file)} cannot exist because a folder above it is a file.",
            hint="Move that file away, then try again.",
        ) from error
    except OSError as error:
        raise _build_error(error, file, "read") from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{_format_path(file)} is not UTF-8 text.", hint="Save it as UTF-8, then try again.") from error
    return ConfigFileContent(raw, text.removeprefix(_BYTE_ORDER_MARK), text.startswith(_BYTE_ORDER_MARK))


def replace_config_file(file: Path, content: bytes, *, is_shared: bool = False) -> None:
    """Replace a file in one step, through links, with its present permissions.

    A new file and its folder are private unless `is_shared`.
    """
    try:
        target = Path(os.path.realpath(file))
        about = _find_stat(target)
        if about is not None and not about.st_mode & stat.S_IWUSR:
            raise ReadOnly(
                f"{_format_path(file)} may not be changed: it is read-only.",
                hint="Change its permissions, then try again.",
            )
        if is_shared:
            target.parent.mkdir(parents=True, exist_ok=True)
        else:
            disk.make_folder(target.parent)
        if about is None:
            mode = _SHARED_FILE_MODE if is_shared else disk.PRIVATE_FILE
            disk.replace(target, content, mode=mode)
        else:
            # Under sudo, the file would belong to root, and its client could not write it.
            owner = about.st_uid, about.st_gid
            disk.replace(target, content, mode=stat.S_IMODE(about.st_mode), owner=owner)
    except OSError as error:
        raise _build_error(error, file, "written") from error


def remove_config_file(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise _build_error(error, file, "removed") from error


def format_backup_moment() -> str:
    return datetime.now().strftime("%Y%m%d-%H%M%S")


def back_up(file: Path, content: bytes, moment: str, copies: Path | None = None) -> Path:
    """Copy the file with its permissions; `moment` distinguishes copies.

    With `copies`, the copy is in that folder and private, because projects are easily committed and a configuration may
    contain passwords.
    """
    folder = _get_backup_folder(file, copies)
    try:
        mode = disk.PRIVATE_FILE if copies else stat.S_IMODE(file.stat().st_mode)
        disk.make_folder(folder)
        number = 1
        while True:
            name = f"{file.name}{BACKUP_INFIX}{moment}" + (f"-{number}" if number > 1 else "")
            copy = folder / name
            try:
                disk.create(copy, content, mode=mode)
            except FileExistsError:
                number += 1
            else:
                return copy
    except OSError as error:
        raise _build_error(error, file, "copied") from error


def list_backups(file: Path, copies: Path | None = None) -> list[Path]:
    """Return the copies of a file, newest first."""
    folder = _get_backup_folder(file, copies)
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    ours = sorted(name for name in names if name.startswith(f"{file.name}{BACKUP_INFIX}"))
    return [folder / name for name in reversed(ours)]


def _get_backup_folder(file: Path, copies: Path | None) -> Path:
    """Return the folder for copies from one folder, because many files have the same name."""
    if copies is None:
        return file.parent
    origin = os.path.realpath(file.parent)
    digest = hashlib.sha256(os.fsencode(origin)).hexdigest()[:12]
    return copies / f"{Path(origin).name.strip('.')[:40]}-{digest}"


def _find_stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _build_error(error: OSError, file: Path, verb: str) -> EverkeptError:
    reason = error.strerror or type(error).__name__
    message = f"{_format_path(file)} could not be {verb}: {reason}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(message, hint="Free some disk space, then try again.")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        kind = Refused if verb == "read" else ReadOnly
        return kind(message, hint="Check its permissions, and close its client.")
    if error.errno == errno.ELOOP:
        return Refused(message, hint="Remove the circular link, then try again.")
    return Unavailable(message)


def _format_path(file: Path) -> str:
    return escape_name(str(file))


def read_text_list(file: Path) -> list[str]:
    """Read a JSON list of texts in the data folder. A list that cannot be read is empty."""
    try:
        held = read_config_file(file)
        listed: object = json.loads(held.text) if held else []
    except (EverkeptError, ValueError, RecursionError):
        return []
    return [item for item in cast(list[Any], listed) if isinstance(item, str)] if isinstance(listed, list) else []


def write_text_list(file: Path, items: Iterable[str]) -> None:
    replace_config_file(file, f"{json.dumps(sorted(items), indent=2)}\n".encode())


PROJECTS_FILE = "setup-projects.json"  # in the data folder


def read_connected_projects(data_dir: Path) -> list[Path]:
    """Return the folders that still exist. An unreadable list counts as empty."""
    return [folder for item in read_text_list(data_dir / PROJECTS_FILE) if (folder := Path(item)).is_dir()]


def remember_project(data_dir: Path, folder: Path) -> None:
    known = read_connected_projects(data_dir)
    if folder not in known:
        write_text_list(data_dir / PROJECTS_FILE, map(str, {*known, folder}))


def forget_projects(data_dir: Path, folders: Iterable[Path]) -> None:
    known = set(read_connected_projects(data_dir))
    if left := known - set(folders):
        write_text_list(data_dir / PROJECTS_FILE, map(str, left))
    else:
        (data_dir / PROJECTS_FILE).unlink(missing_ok=True)
