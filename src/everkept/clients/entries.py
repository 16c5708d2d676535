"""The entries in clients' configurations that start our server and our hooks."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from everkept.clients import jsonc, toml_text
from everkept.clients.config_files import (
    CLAUDE_CODE,
    Client,
    Key,
    Places,
    Syntax,
    Unfitting,
    as_list,
    as_object,
    clients,
    read,
    shown_path,
    with_filled,
)
from everkept.clients.jsonc import NotJson
from everkept.clients.programs import (
    HOOK,
    SERVE,
    arguments,
    is_ours,
    is_program,
    is_there,
    option,
    started,
    words_of,
    words_of_line,
)
from everkept.clients.toml_text import NotToml
from everkept.errors import EverkeptError
from everkept.values import Value, replace

PLUGIN = "everkept"  # before the `@` and the name of its marketplace


def installed_plugin(settings_file: Path) -> str | None:
    """Its full name, unless it is switched off; a file that cannot be read says nothing."""
    enabled = _names(settings_file, "enabledPlugins")
    installed = _names(settings_file.parent / "plugins" / "installed_plugins.json", "plugins")
    for name in (*enabled, *installed):
        if name.split("@")[0] == PLUGIN and enabled.get(name) is not False:
            return name
    return None


def _names(file: Path, key: str) -> dict[str, Any]:
    try:
        held = read(file)
        values: object = jsonc.parsed(held.text) if held else {}
    except (EverkeptError, NotJson):
        return {}
    listed = cast(dict[str, Any], values).get(key) if isinstance(values, dict) else None
    return cast(dict[str, Any], listed) if isinstance(listed, dict) else {}


SERVER = "everkept"  # the name of our entry among the servers


class Editor(Protocol):
    """One syntax of configuration files; the modules `jsonc` and `toml_text`."""

    def parsed(self, text: str) -> Any: ...
    def with_value(self, text: str, path: Sequence[Any], value: Any) -> str: ...
    def without(self, text: str, path: Sequence[Any]) -> str: ...


EDITORS: Mapping[Syntax, Editor] = {"json": jsonc, "toml": toml_text}


class Part(Protocol):
    """What we have to say in one file."""

    @property
    def file(self) -> Path: ...
    @property
    def editor(self) -> Editor: ...
    @property
    def content(self) -> str:
        """What a person would paste."""
        ...

    def put(self, text: str) -> str:
        """With what is ours; NotOurs or Unfitting where there is no place for it."""
        ...

    def taken(self, text: str) -> str:
        """Without what is ours, and what is empty then."""
        ...

    def others(self, values: Any) -> Any:
        """What there is beside ours, without what is empty only because of us.

        Told by other signs than `is_in`, or a mistake of the one could not be noticed by the other.
        """
        ...

    def is_in(self, values: Any) -> bool:
        """Whether something of ours is there."""
        ...


class NotOurs(Exception):
    """Something else has our name already."""

    def __init__(self, path: Sequence[Key], words: Sequence[str]) -> None:
        what = f"starts `{' '.join(words)}`" if words else "is something else"
        super().__init__(f"{shown_path(path)} {what}")


class ServerPart(Value):
    """Our entry among a client's servers. `force` replaces whatever has its name.

    `launchers` as in `programs.arguments`.
    """

    file: Path
    client: Client
    words: tuple[str, ...]
    force: bool = False
    launchers: Collection[str] = ()

    @property
    def editor(self) -> Editor:
        return EDITORS[self.client.syntax]

    @property
    def path(self) -> tuple[str, str]:
        return self.client.servers, SERVER

    @property
    def value(self) -> dict[str, Any]:
        transport = {"type": "stdio"} if self.client.names_transport else {}
        return {**transport, "command": self.words[0], "args": list(self.words[1:])}

    @property
    def content(self) -> str:
        return self.editor.with_value("", self.path, self.value)

    def put(self, text: str) -> str:
        servers = self._servers(self.editor.parsed(text))
        old = servers.get(SERVER)
        if is_ours(words_of(old), SERVE, self.launchers):
            # What somebody added to our entry stays as it is.
            for name in ("command", "args"):
                text = self.editor.with_value(text, (*self.path, name), self.value[name])
            return text
        if SERVER in servers and not self.force:
            raise NotOurs(self.path, words_of(old))
        return self.editor.with_value(text, self.path, self.value)

    def taken(self, text: str) -> str:
        if not self.is_in(self.editor.parsed(text)):
            return text
        text = self.editor.without(text, self.path)
        if self.client.syntax == "json" and not self._servers(self.editor.parsed(text)):
            text = self.editor.without(text, self.path[:1])
        return text

    def others(self, values: Any) -> Any:
        servers = {name: item for name, item in self._servers(values).items() if name != SERVER}
        return with_filled(values, self.path[0], servers)

    def is_in(self, values: Any) -> bool:
        return is_ours(words_of(self._servers(values).get(SERVER)), SERVE, self.launchers)

    def _servers(self, values: Any) -> Mapping[str, Any]:
        return as_object(as_object(values).get(self.path[0], {}), self.path[:1])


HOOKS = "hooks"
TIMEOUT = 15  # seconds; a hook ends itself earlier
_SHELLS = "Bash|PowerShell"
_TOOLS = f"{_SHELLS}|Edit|MultiEdit|Write|NotebookEdit"

# Each event that we answer, and what its group says beside the hook.
EVENTS: Mapping[str, Mapping[str, str]] = {
    "SessionStart": {},
    "UserPromptSubmit": {},
    "PreCompact": {},
    "SessionEnd": {},
    "PostToolUse": {"matcher": _TOOLS},
    "PostToolUseFailure": {"matcher": _SHELLS},
}
# What would make something else of a hook of ours. One that is not waited for is called off when
# the session ends, and may come behind a later one.
_FORMER = ("args", "async")


class _Place(Value):
    """Where a hook of ours stands; `is_alone` in its group."""

    event: str
    group: int
    number: int
    is_alone: bool

    @property
    def path(self) -> tuple[Key, ...]:
        return HOOKS, self.event, self.group, HOOKS, self.number


class HooksPart(Value):
    """Our hooks among others'; `line` gives what the shell runs at an event.

    `launchers` as in `programs.arguments`.
    """

    file: Path
    line: Callable[[str], str]
    launchers: Collection[str] = ()

    @property
    def editor(self) -> Editor:
        return EDITORS["json"]

    @property
    def content(self) -> str:
        return self.editor.with_value("", (HOOKS,), {name: [self._group(name)] for name in EVENTS})

    def put(self, text: str) -> str:
        for event in EVENTS:
            text = self._with_hook(text, event)
        return text

    def taken(self, text: str) -> str:
        return _without_places(text, _places(jsonc.parsed(text), self.launchers))

    def others(self, values: Any) -> Any:
        hooks = dict(_hooks(values))
        for event, groups in _our_events(values):
            hooks[event] = _groups_of_others(groups, event, self.launchers)
            if not hooks[event]:
                del hooks[event]
        return with_filled(values, HOOKS, hooks)

    def is_in(self, values: Any) -> bool:
        return bool(_places(values, self.launchers))

    def _with_hook(self, text: str, event: str) -> str:
        values = jsonc.parsed(text)
        found = [place for place in _places(values, self.launchers) if place.event == event]
        group = self._group(event)
        if not found:
            groups = as_list(_hooks(values).get(event, []), (HOOKS, event))
            return jsonc.with_value(text, (HOOKS, event, len(groups)), group)
        first, *more = found
        return self._renewed(_without_places(text, more), first, group)

    def _renewed(self, text: str, place: _Place, group: Mapping[str, Any]) -> str:
        """Value by value: what somebody added to our hook stays as it is."""
        hook = group[HOOKS][0]
        for name in _FORMER:
            text = jsonc.without(text, (*place.path, name))
        for name, value in hook.items():
            text = jsonc.with_value(text, (*place.path, name), value)
        if place.is_alone and "matcher" in group:
            text = jsonc.with_value(text, (*place.path[:3], "matcher"), group["matcher"])
        return text

    def _group(self, event: str) -> dict[str, Any]:
        hook = {"type": "command", "command": self.line(event), "timeout": TIMEOUT}
        return {**EVENTS[event], HOOKS: [hook]}


def hooked_events(values: Any, launchers: Collection[str] = ()) -> tuple[str, ...]:
    """The events that a hook of ours stands under; Unfitting for hooks of another shape."""
    return tuple(dict.fromkeys(place.event for place in _places(values, launchers)))


def hooks_of_ours(values: Any, launchers: Collection[str] = ()) -> list[tuple[str, ...]]:
    """The words that each hook of ours runs."""
    hooks: list[tuple[str, ...]] = []
    for place in _places(values, launchers):
        hook: Any = values
        for key in place.path:
            hook = hook[key]
        hooks.append(_words(hook, launchers))
    return hooks


def _places(values: Any, launchers: Collection[str]) -> list[_Place]:
    return [
        _Place(event, group, number, is_alone=len(hooks) == 1)
        for event, groups in _our_events(values)
        for group, item in enumerate(groups)
        for hooks in [_hooks_of(item)]
        for number, hook in enumerate(hooks)
        if _is_ours(hook, event, launchers)
    ]


def _without_places(text: str, places: Sequence[_Place]) -> str:
    """From the last to the first, so that the others keep their numbers."""
    for place in reversed(places):
        text = jsonc.without(text, place.path)
        group = jsonc.parsed(text)[HOOKS][place.event][place.group]
        if not group[HOOKS]:
            text = _tidied(jsonc.without(text, place.path[:3]), place.event)
    return text


def _tidied(text: str, event: str) -> str:
    if not jsonc.parsed(text)[HOOKS][event]:
        text = jsonc.without(text, (HOOKS, event))
    return text if jsonc.parsed(text)[HOOKS] else jsonc.without(text, (HOOKS,))


def _groups_of_others(groups: Sequence[Any], event: str, launchers: Collection[str]) -> list[Any]:
    kept: list[Any] = []
    for group in groups:
        others = [hook for hook in _hooks_of(group) if not _tells_of_us(hook, event, launchers)]
        if len(others) == len(_hooks_of(group)):
            kept.append(group)
        elif others:
            kept.append({**group, HOOKS: others})
    return kept


def _is_ours(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Whether it starts this program for this event, with nothing but options behind it."""
    behind = arguments(_words(hook, launchers), HOOK, launchers)
    return bool(behind) and behind[0] == event and _are_options(behind[1:])


def _are_options(words: Sequence[str]) -> bool:
    apart = [word for word in words if not (word.startswith("--") and "=" in word)]
    return len(apart) % 2 == 0 and all(word.startswith("--") for word in apart[::2])


def _tells_of_us(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Asked of the text alone, so that a hook which `_is_ours` takes for ours wrongly is missed."""
    before, verb, _ = " ".join(words_of(hook)).partition(f" {HOOK} {event}")
    program = words_of_line(before)[-1:]
    return bool(verb and program) and is_program(program[0], launchers)


def _words(hook: Any, launchers: Collection[str]) -> tuple[str, ...]:
    """Of a line for the shell, or of a command with its arguments."""
    words = words_of(hook)
    return words_of_line(words[0], launchers) if len(words) == 1 else words


def _hooks_of(group: Any) -> list[Any]:
    hooks = cast(dict[str, Any], group).get(HOOKS) if isinstance(group, dict) else None
    return cast(list[Any], hooks) if isinstance(hooks, list) else []


def _hooks(values: Any) -> Mapping[str, Any]:
    return as_object(as_object(values).get(HOOKS, {}), (HOOKS,))


def _our_events(values: Any) -> Iterator[tuple[str, list[Any]]]:
    """Those that we answer, with their groups: what stands under others is never ours."""
    for event, groups in _hooks(values).items():
        if event in EVENTS:
            yield event, as_list(groups, (HOOKS, event))


Kind = Literal["server", "hooks", "plugin"]


class Surveyed(Value):
    """One thing that a client is told about us, in one of its files.

    A client that is told nothing has one of these without `words`. `scope` is `local` for what
    Claude Code keeps for one folder alone. `data_dir` and `project` are as they are written there;
    None where they are left to the settings. `problem` says why a file could not be read.
    """

    client: str
    title: str
    is_installed: bool
    file: Path
    kind: Kind = "server"
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
        """The program that must be there for it to work."""
        return started(self.words) if self.words else None

    @property
    def program_is_there(self) -> bool:
        return self.program is None or is_there(self.program)

    @property
    def missing_events(self) -> tuple[str, ...]:
        """Events without a hook, where there are hooks at all."""
        if self.kind != "hooks":
            return ()
        return tuple(event for event in EVENTS if event not in self.events)


def surveyed(places: Places) -> list[Surveyed]:
    """Of every client at least one, in the order of their names."""
    return [each for client in clients(places) for each in _of_client(client, places)]


def _of_client(client: Client, places: Places) -> Iterator[Surveyed]:
    blank = Surveyed(client.name, client.title, client.is_installed, client.user_file)
    found = [*_servers(client, blank, places), *_survey_hooks(client, blank, places)]
    if client.name == CLAUDE_CODE and client.user_hooks_file is not None:
        plugin = installed_plugin(client.user_hooks_file)
        if plugin is not None:
            found.append(replace(blank, file=client.user_hooks_file, kind="plugin", name=plugin))
    yield from found or [blank]


def _servers(client: Client, blank: Surveyed, places: Places) -> Iterator[Surveyed]:
    for scope, file in (("user", client.user_file), ("project", client.project_file)):
        if file is None:
            continue
        here = replace(blank, file=file, scope=scope)
        try:
            values = as_object(_values(file, client.syntax))
            yield from _entries(values, client, here, places)
            if client.name == CLAUDE_CODE and scope == "user":
                yield from _local_entries(values, client, here, places)
        except (EverkeptError, NotJson, NotToml, Unfitting) as error:
            yield replace(here, problem=str(error))


def _entries(
    values: Mapping[str, Any], client: Client, here: Surveyed, places: Places
) -> Iterator[Surveyed]:
    servers = as_object(values.get(client.servers, {}), (client.servers,))
    for name, entry in servers.items():
        words = words_of(entry)
        if is_ours(words, SERVE, places.launchers):
            yield _with_words(replace(here, name=name), words, entry)


def _local_entries(
    values: Mapping[str, Any], client: Client, here: Surveyed, places: Places
) -> Iterator[Surveyed]:
    """What Claude Code keeps for the folder alone in which one works."""
    folders: object = values.get("projects")
    if isinstance(folders, dict):
        kept: object = cast(dict[str, Any], folders).get(str(places.project))
        if isinstance(kept, dict):
            here = replace(here, scope="local")
            yield from _entries(cast(dict[str, Any], kept), client, here, places)


def _survey_hooks(client: Client, blank: Surveyed, places: Places) -> Iterator[Surveyed]:
    files = (("user", client.user_hooks_file), ("project", client.project_hooks_file))
    for scope, file in files:
        if file is None:
            continue
        here = replace(blank, file=file, scope=scope, kind="hooks")
        try:
            values = _values(file, "json")
            hooks = hooks_of_ours(values, places.launchers)
            if hooks:
                events = hooked_events(values, places.launchers)
                yield _with_words(replace(here, events=events), hooks[0], {})
        except (EverkeptError, NotJson, Unfitting) as error:
            yield replace(here, problem=str(error))


def _with_words(here: Surveyed, words: Sequence[str], entry: Any) -> Surveyed:
    variables = cast(dict[str, Any], entry).get("env")
    env = cast(dict[str, Any], variables) if isinstance(variables, dict) else {}
    named = {
        name: option(words, flag) or _text(env.get(variable))
        for name, flag, variable in (
            ("data_dir", "--data-dir", "EVERKEPT_DATA_DIR"),
            ("project", "--project", "EVERKEPT_PROJECT"),
        )
    }
    return replace(here, words=tuple(words), data_dir=named["data_dir"], project=named["project"])


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _values(file: Path, syntax: Syntax) -> Any:
    held = read(file)
    return EDITORS[syntax].parsed(held.text) if held else {}
