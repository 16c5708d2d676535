"""Where the config file is."""

import sys
from collections.abc import Mapping
from pathlib import Path

from everkept.errors import InvalidInput

NAME = "config.md"
GATEWAY_NAME = "tools.json"
NO_FILE = "none"  # in place of a path: read no file
CONFIG_VARIABLE = "EVERKEPT_CONFIG"
PLUGIN_CONFIG_VARIABLE = "MEMORY_CONFIG_PATH"
PLUGIN_FILE = Path(".claude", "surrealdb-memory.local.md")


def own_path(environment: Mapping[str, str]) -> Path | None:
    """Where our file belongs on this platform; None where no home folder is known.

    The same folder as platformdirs has, which takes longer to import than to go without.
    """
    home = environment.get("HOME") or environment.get("USERPROFILE")
    if sys.platform == "win32":
        base = environment.get("LOCALAPPDATA") or (home and Path(home, "AppData", "Local"))
    elif environment.get("XDG_CONFIG_HOME", "").strip():
        base = environment["XDG_CONFIG_HOME"]
    elif sys.platform == "darwin":
        base = home and Path(home, "Library", "Application Support")
    else:
        base = home and Path(home, ".config")
    return Path(base, "everkept", NAME) if base else None


def gateway_path(environment: Mapping[str, str]) -> Path | None:
    """Where the gateway's file belongs: beside ours."""
    own = own_path(environment)
    return None if own is None else own.with_name(GATEWAY_NAME)


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """The platform's folder for our data: the same as platformdirs has.

    In the usual cases it is known without it; to import it takes a hook too long.
    """
    home, named = environment.get("HOME", ""), environment.get("XDG_DATA_HOME", "")
    is_plain = home.startswith("/") and "ANDROID_DATA" not in environment
    if is_plain and not named and sys.platform == "darwin":
        return Path(home, "Library", "Application Support", "everkept")
    if is_plain and not named and sys.platform == "linux":
        return Path(home, ".local", "share", "everkept")
    from platformdirs import user_data_path

    return user_data_path("everkept", appauthor=False)


def located(explicit: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read: the one that was named, else ours, else that of surrealdb-memory."""
    named = explicit or environment.get(CONFIG_VARIABLE)
    if named == NO_FILE:
        return None
    if named:
        return _existing(Path(named).expanduser(), "--config" if explicit else CONFIG_VARIABLE)
    own = own_path(environment)
    if own is not None and is_there(own):
        return own
    return _of_the_plugin(environment)


def looked_for(environment: Mapping[str, str]) -> list[Path]:
    """Return the files that are read if they exist, although no flag names them."""
    named = environment.get(PLUGIN_CONFIG_VARIABLE)
    home = environment.get("HOME") or environment.get("USERPROFILE")
    files = (
        own_path(environment),
        gateway_path(environment),
        Path(home, PLUGIN_FILE) if home else None,
        Path(named).expanduser() if named else None,
    )
    return [path for path in files if path is not None]


def target(explicit: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file that is to be written: the one that was named, else ours."""
    named = explicit or environment.get(CONFIG_VARIABLE)
    return own_path(environment) if named in (None, "", NO_FILE) else Path(named).expanduser()


def _of_the_plugin(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME") or environment.get("USERPROFILE")
    usual = Path(home, PLUGIN_FILE) if home else None
    if named := environment.get(PLUGIN_CONFIG_VARIABLE):
        path = Path(named).expanduser()
        # The plugin names the usual place whether or not a file is there.
        if path != usual:
            return _existing(path, PLUGIN_CONFIG_VARIABLE)
    return usual if usual is not None and is_there(usual) else None


def is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be looked into
        return False


def _existing(path: Path, named_by: str) -> Path:
    if not is_there(path):
        raise InvalidInput(
            f"There is no config file {path}.",
            hint=f"`{named_by}` names it; `everkept config init` writes one.",
            argument=named_by,
            value=str(path),
        )
    return path
