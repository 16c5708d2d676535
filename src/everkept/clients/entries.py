"""Entries in the configuration of clients that start our server and hooks."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from everkept.clients import jsonc, toml_text
from everkept.clients.config_files import (
    CLAUDE_CODE,
    ClientEnvironment,
    ClientProgram,
    ConfigSyntax,
    Key,
    UnexpectedShape,
    as_list,
    as_object,
    format_key_path,
    list_clients,
    read_config_file,
    with_entry,
)
from everkept.clients.jsonc import NotJson
from everkept.clients.own_command import (
    HOOK_VERB,
    SERVE_VERB,
    find_arguments,
    find_option,
    get_command_words,
    get_program,
    is_available,
    is_ours,
    is_program,
    split_line,
)
from everkept.clients.toml_text import NotToml
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


SERVER_NAME = "everkept"  # name of our entry among the servers


class ConfigEditor(Protocol):
    """One syntax of configuration files: the module `jsonc` or `toml_text`."""

    def parse_text(self, text: str) -> Any: ...
    def with_value(self, text: str, path: Sequence[Any], value: Any) -> str: ...
    def remove_value(self, text: str, path: Sequence[Any]) -> str: ...


EDITORS: Mapping[ConfigSyntax, ConfigEditor] = {"json": jsonc, "toml": toml_text}


class ConfigPart(Protocol):
    """Our entries in one file."""

    @property
    def file(self) -> Path: ...
    @property
    def editor(self) -> ConfigEditor: ...
    @property
    def content(self) -> str:
        """Return the text that a person would paste."""
        ...

    def insert(self, text: str) -> str:
        """Return the text with our entries. Raise NameTaken or UnexpectedShape if that is impossible."""
        ...

    def remove(self, text: str) -> str:
        """Return the text without our entries and without parts that are empty then."""
        ...

    def exclude_ours(self, values: Any) -> Any:
        """Return everything except our entries, without parts that are empty only because of us.

        It finds our entries in another way than `is_present`, so that each detects errors of the other.
        """
        ...

    def is_present(self, values: Any) -> bool:
        """Return whether one of our entries is present."""
        ...


class NameTaken(Exception):
    """Another entry already has our name."""

    def __init__(self, path: Sequence[Key], words: Sequence[str]) -> None:
        what = f"starts `{' '.join(words)}`" if words else "is something else"
        super().__init__(f"{format_key_path(path)} {what}")


class ServerConfigPart(Value):
    """Our entry among a client's servers. `force` replaces any entry with its name.

    `launchers` is as in `own_command.find_arguments`.
    """

    file: Path
    client: ClientProgram
    words: tuple[str, ...]
    force: bool = False
    launchers: Collection[str] = ()

    @property
    def editor(self) -> ConfigEditor:
        return EDITORS[self.client.syntax]

    @property
    def path(self) -> tuple[str, str]:
        return self.client.servers, SERVER_NAME

    @property
    def value(self) -> dict[str, Any]:
        transport = {"type": "stdio"} if self.client.names_transport else {}
        return {**transport, "command": self.words[0], "args": list(self.words[1:])}

    @property
    def content(self) -> str:
        return self.editor.with_value("", self.path, self.value)

    def insert(self, text: str) -> str:
        servers = self._get_servers(self.editor.parse_text(text))
        old = servers.get(SERVER_NAME)
        if is_ours(get_command_words(old), SERVE_VERB, self.launchers):
            # Additions of other people to our entry are kept.
            for name in ("command", "args"):
                text = self.editor.with_value(text, (*self.path, name), self.value[name])
            return text
        if SERVER_NAME in servers and not self.force:
            raise NameTaken(self.path, get_command_words(old))
        return self.editor.with_value(text, self.path, self.value)

    def remove(self, text: str) -> str:
        if not self.is_present(self.editor.parse_text(text)):
            return text
        text = self.editor.remove_value(text, self.path)
        if self.client.syntax == "json" and not self._get_servers(self.editor.parse_text(text)):
            text = self.editor.remove_value(text, self.path[:1])
        return text

    def exclude_ours(self, values: Any) -> Any:
        servers = {name: item for name, item in self._get_servers(values).items() if name != SERVER_NAME}
        return with_entry(values, self.path[0], servers)

    def is_present(self, values: Any) -> bool:
        return is_ours(get_command_words(self._get_servers(values).get(SERVER_NAME)), SERVE_VERB, self.launchers)

    def _get_servers(self, values: Any) -> Mapping[str, Any]:
        return as_object(as_object(values).get(self.path[0], {}), self.path[:1])


HOOKS_KEY = "hooks"
HOOK_TIMEOUT_SECONDS = 15  # a hook ends itself earlier
_SHELL_MATCHER = "Bash|PowerShell"
_TOOL_MATCHER = f"{_SHELL_MATCHER}|Edit|MultiEdit|Write|NotebookEdit"

# Events that we answer, with the other fields of their group.
HOOK_EVENTS: Mapping[str, Mapping[str, str]] = {
    "SessionStart": {},
    "UserPromptSubmit": {},
    "PreCompact": {},
    "SessionEnd": {},
    "PostToolUse": {"matcher": _TOOL_MATCHER},
    "PostToolUseFailure": {"matcher": _SHELL_MATCHER},
}
# Fields that change the meaning of our hook. An asynchronous hook is canceled when the session ends, and may run after
# a later one.
_OBSOLETE_KEYS = ("args", "async")


class _HookPosition(Value):
    """Position of one of our hooks. `is_alone`: the only one in its group."""

    event: str
    group: int
    number: int
    is_alone: bool

    @property
    def path(self) -> tuple[Key, ...]:
        return HOOKS_KEY, self.event, self.group, HOOKS_KEY, self.number


class HooksConfigPart(Value):
    """Our hooks among others. `line` returns the shell command for an event.

    `launchers` is as in `own_command.find_arguments`.
    """

    file: Path
    line: Callable[[str], str]
    launchers: Collection[str] = ()

    @property
    def editor(self) -> ConfigEditor:
        return EDITORS["json"]

    @property
    def content(self) -> str:
        return self.editor.with_value("", (HOOKS_KEY,), {name: [self._build_group(name)] for name in HOOK_EVENTS})

    def insert(self, text: str) -> str:
        for event in HOOK_EVENTS:
            text = self._with_hook(text, event)
        return text

    def remove(self, text: str) -> str:
        return _remove_positions(text, _find_positions(jsonc.parse_text(text), self.launchers))

    def exclude_ours(self, values: Any) -> Any:
        hooks = dict(_get_hooks(values))
        for event, groups in _iterate_our_events(values):
            hooks[event] = _exclude_our_hooks(groups, event, self.launchers)
            if not hooks[event]:
                del hooks[event]
        return with_entry(values, HOOKS_KEY, hooks)

    def is_present(self, values: Any) -> bool:
        return bool(_find_positions(values, self.launchers))

    def _with_hook(self, text: str, event: str) -> str:
        values = jsonc.parse_text(text)
        found = [place for place in _find_positions(values, self.launchers) if place.event == event]
        group = self._build_group(event)
        if not found:
            groups = as_list(_get_hooks(values).get(event, []), (HOOKS_KEY, event))
            return jsonc.with_value(text, (HOOKS_KEY, event, len(groups)), group)
        first, *more = found
        return self._update_hook(_remove_positions(text, more), first, group)

    def _update_hook(self, text: str, place: _HookPosition, group: Mapping[str, Any]) -> str:
        """Update each value. Additions of other people to our hook are kept."""
        hook = group[HOOKS_KEY][0]
        for name in _OBSOLETE_KEYS:
            text = jsonc.remove_value(text, (*place.path, name))
        for name, value in hook.items():
            text = jsonc.with_value(text, (*place.path, name), value)
        if place.is_alone and "matcher" in group:
            text = jsonc.with_value(text, (*place.path[:3], "matcher"), group["matcher"])
        return text

    def _build_group(self, event: str) -> dict[str, Any]:
        hook = {"type": "command", "command": self.line(event), "timeout": HOOK_TIMEOUT_SECONDS}
        return {**HOOK_EVENTS[event], HOOKS_KEY: [hook]}


def list_hooked_events(values: Any, launchers: Collection[str] = ()) -> tuple[str, ...]:
    """Return the events with one of our hooks. Raise UnexpectedShape for hooks in another form."""
    return tuple(dict.fromkeys(place.event for place in _find_positions(values, launchers)))


def list_our_hooks(values: Any, launchers: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Return the command words of each of our hooks."""
    hooks: list[tuple[str, ...]] = []
    for place in _find_positions(values, launchers):
        hook: Any = values
        for key in place.path:
            hook = hook[key]
        hooks.append(_get_words(hook, launchers))
    return hooks


def _find_positions(values: Any, launchers: Collection[str]) -> list[_HookPosition]:
    return [
        _HookPosition(event, group, number, is_alone=len(hooks) == 1)
        for event, groups in _iterate_our_events(values)
        for group, item in enumerate(groups)
        for hooks in [_get_group_hooks(item)]
        for number, hook in enumerate(hooks)
        if _is_ours(hook, event, launchers)
    ]


def _remove_positions(text: str, places: Sequence[_HookPosition]) -> str:
    """Remove from last to first, so that the other numbers stay valid."""
    for place in reversed(places):
        text = jsonc.remove_value(text, place.path)
        group = jsonc.parse_text(text)[HOOKS_KEY][place.event][place.group]
        if not group[HOOKS_KEY]:
            text = _remove_empty(jsonc.remove_value(text, place.path[:3]), place.event)
    return text


def _remove_empty(text: str, event: str) -> str:
    if not jsonc.parse_text(text)[HOOKS_KEY][event]:
        text = jsonc.remove_value(text, (HOOKS_KEY, event))
    return text if jsonc.parse_text(text)[HOOKS_KEY] else jsonc.remove_value(text, (HOOKS_KEY,))


def _exclude_our_hooks(groups: Sequence[Any], event: str, launchers: Collection[str]) -> list[Any]:
    kept: list[Any] = []
    for group in groups:
        others = [hook for hook in _get_group_hooks(group) if not _mentions_us(hook, event, launchers)]
        if len(others) == len(_get_group_hooks(group)):
            kept.append(group)
        elif others:
            kept.append({**group, HOOKS_KEY: others})
    return kept


def _is_ours(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Return whether it starts this program for this event, followed only by options."""
    behind = find_arguments(_get_words(hook, launchers), HOOK_VERB, launchers)
    return bool(behind) and behind[0] == event and _are_options(behind[1:])


def _are_options(words: Sequence[str]) -> bool:
    apart = [word for word in words if not (word.startswith("--") and "=" in word)]
    return len(apart) % 2 == 0 and all(word.startswith("--") for word in apart[::2])


def _mentions_us(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Check only the text, so that a false match of `_is_ours` is detected."""
    before, verb, _ = " ".join(get_command_words(hook)).partition(f" {HOOK_VERB} {event}")
    program = split_line(before)[-1:]
    return bool(verb and program) and is_program(program[0], launchers)


def _get_words(hook: Any, launchers: Collection[str]) -> tuple[str, ...]:
    """Return the words of a shell line, or of a command with arguments."""
    words = get_command_words(hook)
    return split_line(words[0], launchers) if len(words) == 1 else words


def _get_group_hooks(group: Any) -> list[Any]:
    hooks = cast(dict[str, Any], group).get(HOOKS_KEY) if isinstance(group, dict) else None
    return cast(list[Any], hooks) if isinstance(hooks, list) else []


def _get_hooks(values: Any) -> Mapping[str, Any]:
    return as_object(as_object(values).get(HOOKS_KEY, {}), (HOOKS_KEY,))


def _iterate_our_events(values: Any) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the groups of the events that we answer. Hooks of other events are never ours."""
    for event, groups in _get_hooks(values).items():
        if event in HOOK_EVENTS:
            yield event, as_list(groups, (HOOKS_KEY, event))


InstallationKind = Literal["server", "hooks", "plugin"]


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
    problem: str | None = None

    @property
    def is_set_up(self) -> bool:
        return bool(self.words) or self.kind == "plugin"

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
        return tuple(event for event in HOOK_EVENTS if event not in self.events)


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
            values = as_object(_read_values(file, client.syntax))
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
    files = (("user", client.user_hooks_file), ("project", client.project_hooks_file))
    for scope, file in files:
        if file is None:
            continue
        here = replace(blank, file=file, scope=scope, kind="hooks")
        try:
            values = _read_values(file, "json")
            hooks = list_our_hooks(values, places.launchers)
            if hooks:
                events = list_hooked_events(values, places.launchers)
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


def _read_values(file: Path, syntax: ConfigSyntax) -> Any:
    held = read_config_file(file)
    return EDITORS[syntax].parse_text(held.text) if held else {}
