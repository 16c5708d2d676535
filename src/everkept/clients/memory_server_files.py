"""Files in which the official memory server keeps its graph, found by its own settings and those of clients."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from everkept.clients.config_files import ClientEnvironment, ClientProgram, UnexpectedShape, as_object, list_clients
from everkept.clients.jsonc import NotJson
from everkept.clients.own_command import get_command_words
from everkept.clients.survey import read_values
from everkept.clients.toml_text import NotToml
from everkept.errors import EverkeptError

PACKAGE = "server-memory"  # in the words of its command
VARIABLE = "MEMORY_FILE_PATH"
DEFAULT_NAMES = ("memory.jsonl", "memory.json")  # older versions have the second one
_ENVIRONMENTS = ("env", "environment")  # of an entry; OpenCode has the second one
_IN_CACHE = "*/node_modules/@modelcontextprotocol/server-memory/dist"


def find_memory_files(places: ClientEnvironment) -> list[Path]:
    """Return the files that exist, each once."""
    named = [Path(path) for path in _list_named(places)]
    beside = [folder / name for folder in _list_program_folders(places) for name in DEFAULT_NAMES]
    found = {path.resolve(): path for path in [*named, *beside] if path.is_absolute() and path.is_file()}
    return list(found.values())


def _list_named(places: ClientEnvironment) -> Iterator[str]:
    yield places.environment.get(VARIABLE, "")
    for entry in _list_entries(places):
        for name in _ENVIRONMENTS:
            variables = entry.get(name)
            path = cast(Mapping[str, Any], variables).get(VARIABLE) if isinstance(variables, dict) else None
            if isinstance(path, str):
                yield path


def _list_program_folders(places: ClientEnvironment) -> Iterator[Path]:
    """Yield the folders of the program, where it keeps its file by default."""
    for entry in _list_entries(places):
        yield from (Path(word).parent for word in get_command_words(entry) if word.endswith(".js"))
    if places.platform == "win32":
        usual = Path(places.environment.get("LOCALAPPDATA") or places.home / "AppData" / "Local") / "npm-cache"
    else:
        usual = places.home / ".npm"
    yield from sorted(Path(places.environment.get("npm_config_cache") or usual, "_npx").glob(_IN_CACHE))


def _list_entries(places: ClientEnvironment) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of clients that start the program."""
    for client in list_clients(places):
        for file in (client.user_file, client.project_file):
            try:
                values = as_object({} if file is None else read_values(file, client.syntax))
                entries = [each for table in _list_tables(values, client) for each in table.values()]
            except (EverkeptError, NotJson, NotToml, UnexpectedShape):
                continue  # `setup` and `doctor` report it
            yield from (
                cast(Mapping[str, Any], entry)
                for entry in entries
                if isinstance(entry, dict) and any(PACKAGE in word for word in get_command_words(entry))
            )


def _list_tables(values: Mapping[str, Any], client: ClientProgram) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of servers: the client's own, and those that Claude Code keeps for folders."""
    for place in (values, *as_object(values.get("projects", {})).values()):
        if isinstance(place, dict):
            yield as_object(cast(dict[str, Any], place).get(client.servers, {}))
