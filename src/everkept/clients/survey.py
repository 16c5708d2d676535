"""What the clients on this machine are told about us: for whoever looks for what is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from everkept.clients.config_files import read
from everkept.clients.entries import EDITORS, installed_plugin
from everkept.clients.hook_entries import EVENTS, hooked_events, hooks_of_ours
from everkept.clients.jsonc import NotJson
from everkept.clients.locations import CLAUDE_CODE, Client, Places, Syntax, clients
from everkept.clients.programs import SERVE, is_ours, is_there, option, started, words_of
from everkept.clients.shapes import Unfitting, as_object
from everkept.clients.toml_text import NotToml
from everkept.errors import EverkeptError
from everkept.values import Value, replace

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
    found = [*_servers(client, blank, places), *_hooks(client, blank, places)]
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


def _hooks(client: Client, blank: Surveyed, places: Places) -> Iterator[Surveyed]:
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
