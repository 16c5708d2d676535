"""Where the programs keep their transcripts on this machine."""

from collections.abc import Mapping
from pathlib import Path

from everkept.values import Value


class ClientFolders(Value):
    """The folder of each program; nobody says that it is there."""

    claude: Path
    codex: Path
    gemini: Path
    cursor: Path
    cursor_user: Path  # the editor's own folder, in which its database is


def client_folders(environment: Mapping[str, str], home: Path, platform: str) -> ClientFolders:
    """`platform` as in `sys.platform`."""
    return ClientFolders(
        claude=_named(environment, "CLAUDE_CONFIG_DIR") or home / ".claude",
        codex=_named(environment, "CODEX_HOME") or home / ".codex",
        gemini=(_named(environment, "GEMINI_CLI_HOME") or home) / ".gemini",
        cursor=home / ".cursor",
        cursor_user=_applications(environment, home, platform) / "Cursor" / "User",
    )


def _applications(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """The folder in which editors of this kind keep theirs."""
    if platform == "win32":
        return _named(environment, "APPDATA") or home / "AppData" / "Roaming"
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return _named(environment, "XDG_CONFIG_HOME") or home / ".config"


def _named(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    path = Path(value)
    try:
        return path.expanduser()
    except RuntimeError:  # of a user whose home is not known
        return path
