"""Entries in the configuration of clients that name a server at an address."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.clients.config_files import ClientProgram, Key, as_list, as_object, with_entry
from everkept.clients.entries import EDITORS, SERVER_NAME, ConfigEditor, NameTaken
from everkept.clients.own_command import REMOTE_BRIDGE, get_command_words, get_server_address
from everkept.values import Value, field

_AUTHORIZATION = "headers", "Authorization"
_INPUTS = "inputs"
_TOKEN_INPUT: Mapping[str, Any] = {
    "type": "promptString",
    "id": "everkept-token",
    "description": "Token for Everkept",
    "password": True,
}


class RemoteFormat(Value):
    """How a client writes a server at an address. `{}` in `token` is the name of a variable."""

    address: str = "url"
    transport: str | None = None
    token_path: tuple[str, ...] = _AUTHORIZATION
    token: str = "Bearer ${{env:{}}}"
    has_input: bool = False  # the client asks for the token and stores it
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of a new entry


# Formats by the name of the client. Claude Desktop accepts only programs.
REMOTE_FORMATS: Mapping[str, RemoteFormat] = {
    "claude-code": RemoteFormat(transport="http", token="Bearer ${{{}}}"),
    "codex": RemoteFormat(token_path=("bearer_token_env_var",), token="{}"),
    "copilot": RemoteFormat(transport="http", token="Bearer ${{{}}}", fields={"tools": ["*"]}),
    "cursor": RemoteFormat(),
    "gemini": RemoteFormat(transport="http", token="Bearer ${}"),
    "opencode": RemoteFormat(transport="remote", token="Bearer {{env:{}}}", fields={"enabled": True}),
    "vscode": RemoteFormat(transport="http", token=f"Bearer ${{{{input:{_TOKEN_INPUT['id']}}}}}", has_input=True),
    "windsurf": RemoteFormat(address="serverUrl"),
}


class RemoteConfigPart(Value):
    """Our entry for a server at `url`. Only the name of the variable with the token is in it.

    `force` replaces any entry with its name. `header_file` has the token for a client that accepts no variable.
    """

    file: Path
    client: ClientProgram
    url: str = ""
    token_variable: str | None = None
    header_file: Path | None = None
    force: bool = False

    @property
    def editor(self) -> ConfigEditor:
        return EDITORS[self.client.syntax]

    @property
    def format(self) -> RemoteFormat | None:
        return REMOTE_FORMATS.get(self.client.name)

    @property
    def path(self) -> tuple[str, str]:
        return self.client.servers, SERVER_NAME

    @property
    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for (name, *below), item in self._get_fields().items():
            value[name] = {below[0]: item} if below else item
        return {**value, **self.format.fields} if self.format is not None else value

    @property
    def content(self) -> str:
        return self._with_input(self.editor.with_value("", self.path, self.value))

    def insert(self, text: str) -> str:
        servers = self._get_servers(self.editor.parse_text(text))
        old = servers.get(SERVER_NAME)
        if get_server_address(old) is None:
            if SERVER_NAME in servers and not self.force:
                raise NameTaken(self.path, get_command_words(old))
            return self._with_input(self.editor.with_value(text, self.path, self.value))
        # Additions of other people to our entry are kept, but a token never goes to another server.
        fields = self._get_fields()
        for below, item in fields.items():
            text = self.editor.with_value(text, (*self.path, *below), item)
        if self.format is not None and self.format.token_path not in fields:
            text = self._remove_field(text, self.format.token_path)
        return self._with_input(text)

    def remove(self, text: str) -> str:
        if not self.is_present(self.editor.parse_text(text)):
            return text
        text = self._remove_input(self.editor.remove_value(text, self.path))
        if self.client.syntax == "json" and not self._get_servers(self.editor.parse_text(text)):
            text = self.editor.remove_value(text, self.path[:1])
        return text

    def exclude_ours(self, values: Any) -> Any:
        servers = {name: item for name, item in self._get_servers(values).items() if name != SERVER_NAME}
        kept = with_entry(values, self.path[0], servers)
        if self.format is None or not self.format.has_input:
            return kept
        inputs = [item for item in _get_inputs(values) if not _is_our_input(item)]
        rest = {name: item for name, item in kept.items() if name != _INPUTS}
        return {**rest, _INPUTS: inputs} if inputs else rest

    def is_present(self, values: Any) -> bool:
        return get_server_address(self._get_servers(values).get(SERVER_NAME)) is not None

    def _get_fields(self) -> dict[tuple[str, ...], Any]:
        """Return the values of our entry by their paths in it."""
        form = self.format
        if form is None:
            words = ["-y", REMOTE_BRIDGE, self.url]
            if self.header_file is not None:
                words += ["--header-file", str(self.header_file)]
            return {("command",): "npx", ("args",): words}
        fields: dict[tuple[str, ...], Any] = {("type",): form.transport} if form.transport else {}
        fields[(form.address,)] = self.url
        if self.token_variable is not None:
            fields[form.token_path] = form.token.format(self.token_variable)
        return fields

    def _remove_field(self, text: str, field: Sequence[Key]) -> str:
        text = self.editor.remove_value(text, (*self.path, *field))
        entry = as_object(self._get_servers(self.editor.parse_text(text))[SERVER_NAME])
        is_empty = len(field) > 1 and entry.get(str(field[0])) == {}
        return self.editor.remove_value(text, (*self.path, field[0])) if is_empty else text

    def _with_input(self, text: str) -> str:
        if self.format is None or not self.format.has_input or self.token_variable is None:
            return self._remove_input(text)
        inputs = _get_inputs(self.editor.parse_text(text))
        if any(_is_our_input(item) for item in inputs):
            return text
        return self.editor.with_value(text, (_INPUTS, len(inputs)), _TOKEN_INPUT)

    def _remove_input(self, text: str) -> str:
        if self.format is None or not self.format.has_input:
            return text
        for number, item in reversed([*enumerate(_get_inputs(self.editor.parse_text(text)))]):
            if _is_our_input(item):
                text = self.editor.remove_value(text, (_INPUTS, number))
        is_empty = as_object(self.editor.parse_text(text)).get(_INPUTS) == []
        return self.editor.remove_value(text, (_INPUTS,)) if is_empty else text

    def _get_servers(self, values: Any) -> Mapping[str, Any]:
        return as_object(as_object(values).get(self.path[0], {}), self.path[:1])


def _get_inputs(values: Any) -> list[Any]:
    return as_list(as_object(values).get(_INPUTS, []), (_INPUTS,))


def _is_our_input(item: Any) -> bool:
    return isinstance(item, dict) and cast(dict[str, Any], item).get("id") == _TOKEN_INPUT["id"]
