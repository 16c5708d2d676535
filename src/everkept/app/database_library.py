"""The library of a database by its address: made late, refused while it is half a copy."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from everkept.core.conditions import Condition
from everkept.core.library import Library, PassingLibrary
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


class DeferredLibrary(PassingLibrary):
    """The library that `make` returns; until then its condition is `condition`."""

    def __init__(self, make: Callable[[], Library], condition: Condition) -> None:
        self._make = make
        self._condition = condition
        self._made: Library | None = None

    @property
    def condition(self) -> Condition:
        return self._condition if self._made is None else self._made.condition

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def _reached(self) -> Library:
        if self._made is None:
            self._made = self._make()
        return self._made


# Notes in a copy, until all is there: where it is copied from, and the ids of what was brought.
UNDER_WAY = "migration.from"
BROUGHT = "migration.brought"


class FinishedLibrary(PassingLibrary):
    """A library that refuses every call as long as it is an unfinished copy.

    The first call looks whether it is, and then runs `on_first`.
    """

    def __init__(
        self, library: Library, name: str, on_first: Callable[[], Awaitable[None]]
    ) -> None:
        self._library = library
        self._name = name
        self._on_first = on_first
        self._is_seen = False

    @property
    def condition(self) -> Condition:
        return self._library.condition

    async def close(self) -> None:
        await self._library.close()

    async def _reached(self) -> Library:
        if not self._is_seen:
            await self._look()
        return self._library

    async def _look(self) -> None:
        if origin := await self._library.note(UNDER_WAY):
            command = f"everkept migrate --from {_quoted(origin)} --to {_quoted(self._name)}"
            raise Refused(
                f"{self._name} holds an unfinished copy of {origin}, and is not used before that "
                "is finished.",
                hint=f"`{command}` finishes it.",
            )
        await self._on_first()
        self._is_seen = True


def _quoted(name: str) -> str:
    return quote(address_in(name))
