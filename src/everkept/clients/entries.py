"""The entry in a client's configuration that starts our server."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from everkept.clients import jsonc, toml_text
from everkept.clients.config_files import read
from everkept.clients.jsonc import NotJson
from everkept.clients.locations import Client, Syntax
from everkept.clients.programs import SERVE, is_ours, words_of
from everkept.clients.shapes import Key, as_object, shown_path, with_filled
from everkept.errors import EverkeptError
from everkept.values import Value

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
