"""How a command names a place where everything is kept, or can be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everkept.errors import InvalidInput, Refused
from everkept.settings import Settings, is_server, load, server_engine

HINT = (
    "It can be sqlite:FOLDER, surreal:FOLDER, or the address of a server such as "
    "ws://127.0.0.1:8000 (SurrealDB) or postgresql://127.0.0.1:5432/everkept."
)
_FOLDERS = ("sqlite", "surreal")
_FLAG = "--database-url"


def settings_of(
    address: str,
    flags: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    named_by: str = "--to",
) -> Settings:
    """What the settings would be with that place in them; the rest stays as it is.

    A mistake in it is told with the option that it was `named_by`.
    """
    kind, _, rest = address.partition(":")
    if engine := server_engine(kind):
        place = {"engine": engine, "database_url": address}
        try:
            return load({**flags, **place}, environment)
        except (InvalidInput, Refused) as error:
            raise _named(error, named_by) from None
    if kind in _FOLDERS and rest.strip():
        place = {
            "engine": kind,
            "deployment_mode": "embedded-file",
            "data_dir": Path(rest).expanduser(),
            "database_url": None,
        }
        return load({**flags, **place}, environment)
    raise InvalidInput(
        f"{address!r} names no place that everything can be kept in.",
        hint=HINT,
        argument=named_by,
        value=address,
    )


def _named(error: InvalidInput | Refused, flag: str) -> InvalidInput | Refused:
    """Of an address, settings know only the option that all commands have."""
    if error.facts.get("argument") != _FLAG:
        return error
    message = error.message.replace(f"`{_FLAG}`", f"`{flag}`", 1)
    return type(error)(message, hint=error.hint, **{**error.facts, "argument": flag})


def name_of(settings: Settings) -> str:
    """The place that settings name, as the address that would name it."""
    if settings.engine == "postgres":
        return f"{settings.database_url} ({settings.namespace})"
    if is_server(settings):
        return f"{settings.database_url} ({settings.namespace}/{settings.database})"
    if settings.deployment_mode == "embedded-memory":
        return "memory"
    return f"{settings.engine}:{settings.data_dir}"


def address_in(name: str) -> str:
    """Of such a name what a command takes."""
    kind = name.partition(":")[0]
    return name.partition(" (")[0] if server_engine(kind) else name
