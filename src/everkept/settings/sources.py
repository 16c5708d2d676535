"""Given settings: from flags, otherwise the environment, otherwise the config file."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everkept.errors import InvalidInput
from everkept.settings.locations import find_config
from everkept.settings.model import SERVER_SETTINGS, complete_settings
from everkept.settings.setting_values import ALIASES, FLAG_ONLY_SETTINGS, SHIPPED_MODEL, GivenSetting

PREFIX = "EVERKEPT_"

# Other variables in their order: those of surrealdb-memory and of the client.
VARIABLES: dict[str, tuple[str, ...]] = {
    "database_url": ("MEMORY_REMOTE_URL",),
    "data_dir": ("MEMORY_DB_PATH",),
    "deployment_mode": ("MEMORY_DEPLOYMENT_MODE",),
    "log_level": ("MEMORY_LOG_LEVEL",),
    "path": ("CLAUDE_PROJECT_DIR",),
    "session_id": ("MEMORY_SESSION_ID", "CLAUDE_CODE_SESSION_ID"),
}
OTHER_VARIABLES = frozenset[str]().union(*VARIABLES.values())

# Other names in a file: those of surrealdb-memory.
REMOTE_KEYS = {"remote_url": "database_url", "remote_user": "database_user", "remote_pass": "database_password"}
FILE_KEYS = {"db_path": "data_dir", **REMOTE_KEYS}
PLUGIN_FOLDER_KEYS = ("MEMORY_DB_PATH", "db_path")
# The flags of settings whose names a file uses for other things.
REMOTE_FLAGS = {"ssh_user": "--remote-user", "ssh_host": "--remote-host", "ssh_path": "--remote-path"}
LIST_SETTINGS = frozenset({"toolsets", "history_exclude"})
# Keys with a single allowed value, and the reason.
FIXED_SETTINGS = {"embedding_dimensions": ("384", f"that is what {SHIPPED_MODEL} gives")}


class GatheredSettings(NamedTuple):
    """Effective settings, others that were given, and the file that was read."""

    settings: dict[str, GivenSetting]
    others: list[GivenSetting]
    file: Path | None


def gather(names: Collection[str], flags: Mapping[str, Any], environment: Mapping[str, str]) -> GatheredSettings:
    """Gather the settings. Raise InvalidInput and Refused for invalid and contradictory ones."""
    from_flags = {given.name: given for given in _read_flags(names, flags)}
    config = from_flags.get("config")
    path = find_config(None if config is None else str(config.value), environment)
    at_top, in_body = ([], []) if path is None else _read_file(names, path)
    from_environment = list(_read_environment(names, environment))
    by_name = {given.name: given for given in (*at_top, *from_environment)} | from_flags
    others = [given for name, given in by_name.items() if name not in names]
    model = by_name.get("embedding_model")
    for given in others:
        # Another model has its own dimensions, which are read from it.
        if (
            model is None
            or str(model.value) in (SHIPPED_MODEL, *ALIASES["embedding_model"])
            or not str(given.value).isdecimal()
        ):
            _check_fixed(given)
    known = {name: given for name, given in by_name.items() if name in names}
    settings, unused = complete_settings(known, in_body)
    return GatheredSettings(settings, [*others, *unused], path)


def _read_flags(names: Collection[str], flags: Mapping[str, Any]) -> Iterator[GivenSetting]:
    for name, value in flags.items():
        if name in names and value is not None:
            flag = REMOTE_FLAGS.get(name, "--" + name.replace("_", "-"))
            yield GivenSetting(name, value, flag, f"flag {flag}")


def _read_environment(names: Collection[str], environment: Mapping[str, str]) -> Iterator[GivenSetting]:
    """Read the environment. An empty variable counts as not set."""
    candidates = {name: (PREFIX + name.upper(), *VARIABLES.get(name, ())) for name in names}
    for name, variables in candidates.items():
        for variable in variables:
            if value := environment.get(variable):
                yield GivenSetting(name, value, variable, f"environment {variable}")
                break


def _read_file(names: Collection[str], path: Path) -> tuple[list[GivenSetting], list[GivenSetting]]:
    """Return the settings of the file, and the server's in its body, which count only in the modes of a server."""
    # Most starts have no file to read, and load no reader.
    from everkept.settings.config_file import ConfigEntry, read_config

    def given(entry: ConfigEntry) -> GivenSetting:
        name, source = FILE_KEYS.get(entry.key, entry.key), f"config file {path} line {entry.line}"
        return GivenSetting(name, entry.value, entry.key, source, path, entry.line)

    known = [*(name for name in names if name not in FLAG_ONLY_SETTINGS), *FILE_KEYS, *FIXED_SETTINGS]
    found = read_config(path, known)
    at_top = [given(entry) for entry in found.settings]
    in_body = [given(entry) for entry in found.body]
    _check_keys(at_top, known)
    at_top = [item for item in at_top if item.value is not None]
    _check_keys(in_body, known, at_top)
    in_body = [item for item in in_body if item.value is not None]
    of_server = [item for item in in_body if item.name in SERVER_SETTINGS]
    return [*at_top, *(item for item in in_body if item not in of_server)], of_server


def _check_keys(entries: Sequence[GivenSetting], known: Sequence[str], before: Sequence[GivenSetting] = ()) -> None:
    seen = {given.name: given for given in before}
    for given in entries:
        if given.key not in known:
            raise _build_unknown_error(given, known)
        if first := seen.get(given.name):
            raise given.build_invalid(f"`{first.key}` in line {first.line} says something already.")
        if isinstance(given.value, list) and given.name not in LIST_SETTINGS:
            raise given.build_invalid("it must be one value, not a list.")
        seen[given.name] = given


def _build_unknown_error(given: GivenSetting, known: Sequence[str]) -> InvalidInput:
    from difflib import get_close_matches

    close = get_close_matches(given.key, known, n=1)
    return InvalidInput(
        f"Unknown setting `{given.key}` ({given.file}, line {given.line}).",
        hint=f"Did you mean `{close[0]}`?" if close else "To list all settings, run `everkept config`.",
        argument=given.key,
        file=str(given.file),
        line=given.line,
    )


def _check_fixed(given: GivenSetting) -> None:
    only, reason = FIXED_SETTINGS[given.name]
    if str(given.value) != only:
        raise given.build_refusal(f"it can only be {only} here: {reason}.", (only,))
