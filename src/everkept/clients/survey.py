"""Survey of the clients on this machine: which of them start our server or our hooks."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from everkept.clients import jsonc
from everkept.clients.config_files import (
    CLAUDE_CODE,
    ClientEnvironment,
    ClientProgram,
    ConfigSyntax,
    UnexpectedShape,
    as_object,
    list_clients,
    read_config_file,
)
from everkept.clients.entries import EDITORS, SERVER_NAME
from everkept.clients.hook_entries import HOOK_FORMATS, list_hooked_events, list_our_hooks
from everkept.clients.jsonc import NotJson
from everkept.clients.own_command import (
    SERVE_VERB,
    find_option,
    get_command_words,
    get_program,
    get_server_address,
    is_available,
    is_ours,
)
from everkept.clients.toml_text import NotToml
from everkept.core.secrets import mask_text
from everkept.errors import EverkeptError
from everkept.values import Value, replace

PLUGIN_NAME = "everkept"  # before the `@` and the name of its marketplace


def find_plugin(settings_file: Path) -> str | None:
    """Return the full name of the plugin if it is enabled. An unreadable file counts as without it."""
    enabled = _read_names(settings_file, "enabledPlugins")
    installed = _read_names(settings_file.parent / "plugins" / "installed_plugins.json", "plugins")
    for name in (*enabled, *installed):
        if name.split("@")[0] == PLUGIN_NAME and enabled.get(name) is not False:
            return name
    return None


def _read_names(file: Path, key: str) -> dict[str, Any]:
    try:
        held = read_config_file(file)
        values: object = jsonc.parse_text(held.text) if held else {}
    except (EverkeptError, NotJson):
        return {}
    listed = cast(dict[str, Any], values).get(key) if isinstance(values, dict) else None
    return cast(dict[str, Any], listed) if isinstance(listed, dict) else {}


InstallationKind = Literal["server", "remote", "hooks", "plugin"]


class ClientInstallation(Value):
    """One entry about us in one file of a client.

    A client without entries has one of these without `words`. `scope` is `local` for entries of Claude Code for one
    folder. `data_dir` and `project` are as written there, or None if the settings decide. `problem` is why a file
    cannot be read.
    """

    client: str
    title: str
    is_installed: bool
    file: Path
    kind: InstallationKind = "server"
    scope: Literal["user", "project", "local"] = "user"
    name: str = ""
    words: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    data_dir: str | None = None
    project: str | None = None
    url: str | None = None
    problem: str | None = None

    @property
    def is_set_up(self) -> bool:
        return bool(self.words) or self.kind in ("remote", "plugin")

    @property
    def program(self) -> str | None:
        """Return the program that must exist for it to work."""
        return get_program(self.words) if self.words else None

    @property
    def is_program_available(self) -> bool:
        return self.program is None or is_available(self.program)

    @property
    def missing_events(self) -> tuple[str, ...]:
        """Return the events without a hook, if other hooks exist."""
        if self.kind != "hooks":
            return ()
        return tuple(event for event in HOOK_FORMATS[self.client].events if event not in self.events)


def survey_clients(places: ClientEnvironment) -> list[ClientInstallation]:
    """Return at least one installation for each client, sorted by name."""
    return [each for client in list_clients(places) for each in _survey_client(client, places)]


def _survey_client(client: ClientProgram, places: ClientEnvironment) -> Iterator[ClientInstallation]:
    blank = ClientInstallation(client.name, client.title, client.is_installed, client.user_file)
    found = [*_survey_servers(client, blank, places), *_survey_hooks(client, blank, places)]
    if client.name == CLAUDE_CODE and client.user_hooks_file is not None:
        plugin = find_plugin(client.user_hooks_file)
        if plugin is not None:
            found.append(replace(blank, file=client.user_hooks_file, kind="plugin", name=plugin))
    yield from found or [blank]


def _survey_servers(
    client: ClientProgram, blank: ClientInstallation, places: ClientEnvironment
) -> Iterator[ClientInstallation]:
    for scope, file in (("user", client.user_file), ("project", client.project_file)):
        if file is None:
            continue
        here = replace(blank, file=file, scope=scope)
        try:
            values = as_object(read_values(file, client.syntax))
            yield from _survey_entries(values, client, here, places)
            if client.name == CLAUDE_CODE and scope == "user":
                yield from _survey_local_entries(values, client, here, places)
        except (EverkeptError, NotJson, NotToml, UnexpectedShape) as error:
            yield replace(here, problem=str(error))


def _survey_entries(
    values: Mapping[str, Any], client: ClientProgram, here: ClientInstallation, places: ClientEnvironment
) -> Iterator[ClientInstallation]:
    servers = as_object(values.get(client.servers, {}), (client.servers,))
    for name, entry in servers.items():
        words = get_command_words(entry)
        if is_ours(words, SERVE_VERB, places.launchers):
            yield _with_words(replace(here, name=name), words, entry)
        elif name == SERVER_NAME and (url := get_server_address(entry)) is not None:
            yield replace(here, kind="remote", name=name, url=mask_text(url)[0])


def _survey_local_entries(
    values: Mapping[str, Any], client: ClientProgram, here: ClientInstallation, places: ClientEnvironment
) -> Iterator[ClientInstallation]:
    """Return the entries of Claude Code for the working folder."""
    folders: object = values.get("projects")
    if isinstance(folders, dict):
        kept: object = cast(dict[str, Any], folders).get(str(places.project))
        if isinstance(kept, dict):
            here = replace(here, scope="local")
            yield from _survey_entries(cast(dict[str, Any], kept), client, here, places)


def _survey_hooks(
    client: ClientProgram, blank: ClientInstallation, places: ClientEnvironment
) -> Iterator[ClientInstallation]:
    form = HOOK_FORMATS.get(client.name) if client.is_installed else None  # the file may be there for another client
    files = (("user", client.user_hooks_file), ("project", client.project_hooks_file))
    for scope, file in files:
        if file is None or form is None:
            continue
        here = replace(blank, file=file, scope=scope, kind="hooks")
        try:
            values = read_values(file, "json")
            hooks = list_our_hooks(values, form, places.launchers)
            if hooks:
                events = list_hooked_events(values, form, places.launchers)
                yield _with_words(replace(here, events=events), hooks[0], {})
        except (EverkeptError, NotJson, UnexpectedShape) as error:
            yield replace(here, problem=str(error))


def _with_words(here: ClientInstallation, words: Sequence[str], entry: Any) -> ClientInstallation:
    variables = cast(dict[str, Any], entry).get("env")
    env = cast(dict[str, Any], variables) if isinstance(variables, dict) else {}
    named = {
        name: find_option(words, flag) or _as_text(env.get(variable))
        for name, flag, variable in (
            ("data_dir", "--data-dir", "EVERKEPT_DATA_DIR"),
            ("project", "--project", "EVERKEPT_PROJECT"),
        )
    }
    return replace(here, words=tuple(words), data_dir=named["data_dir"], project=named["project"])


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def read_values(file: Path, syntax: ConfigSyntax) -> Any:
    """Return what a file has, or an empty object if it does not exist."""
    held = read_config_file(file)
    return EDITORS[syntax].parse_text(held.text) if held else {}
