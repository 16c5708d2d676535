"""Entries in the configuration of clients: the parts that setup writes, and the entry that starts our server."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from everkept.clients import jsonc, toml_text
from everkept.clients.config_files import ClientProgram, ConfigSyntax, Key, as_object, format_key_path, with_entry
from everkept.clients.own_command import SERVE_VERB, get_command_words, is_ours
from everkept.values import Value

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


class JoinedConfigPart(Value):
    """Several of our parts in one file, which is changed in one step."""

    parts: tuple[ConfigPart, ...]

    @property
    def file(self) -> Path:
        return self.parts[0].file

    @property
    def editor(self) -> ConfigEditor:
        return self.parts[0].editor

    @property
    def content(self) -> str:
        return self.insert("")

    def insert(self, text: str) -> str:
        for part in self.parts:
            text = part.insert(text)
        return text

    def remove(self, text: str) -> str:
        for part in reversed(self.parts):
            text = part.remove(text)
        return text

    def exclude_ours(self, values: Any) -> Any:
        for part in self.parts:
            values = part.exclude_ours(values)
        return values

    def is_present(self, values: Any) -> bool:
        return any(part.is_present(values) for part in self.parts)


def join_parts(parts: Sequence[ConfigPart]) -> list[ConfigPart]:
    """Return one part for each file, in order."""
    files = dict.fromkeys(part.file for part in parts)
    grouped = [tuple(part for part in parts if part.file == file) for file in files]
    return [group[0] if len(group) == 1 else JoinedConfigPart(group) for group in grouped]


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
        return {**self.client.entry_fields, **self._command}

    @property
    def _command(self) -> dict[str, Any]:
        if self.client.has_joined_command:
            return {"command": list(self.words)}
        return {"command": self.words[0], "args": list(self.words[1:])}

    @property
    def content(self) -> str:
        return self.editor.with_value("", self.path, self.value)

    def insert(self, text: str) -> str:
        servers = self._get_servers(self.editor.parse_text(text))
        old = servers.get(SERVER_NAME)
        if is_ours(get_command_words(old), SERVE_VERB, self.launchers):
            # Additions of other people to our entry are kept.
            for name, value in self._command.items():
                text = self.editor.with_value(text, (*self.path, name), value)
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
