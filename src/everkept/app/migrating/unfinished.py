"""A copy that is not finished yet: nothing but the command that finishes it may use it."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from shlex import quote
from typing import Any, cast

from everkept.app.migrating.addresses import address_in
from everkept.core.ports import Library
from everkept.errors import Refused

# Notes in a copy, until all is there: where it is copied from, and the ids of what was brought.
UNDER_WAY = "migration.from"
BROUGHT = "migration.brought"


def finished(library: Library, name: str, on_first: Callable[[], Awaitable[None]]) -> Library:
    """The same one, which refuses all as long as it is an unfinished copy.

    It is looked at before the first call, and then no more. `on_first` is done after that.
    """
    return cast(Library, _Finished(library, name, on_first))


class _Finished:
    def __init__(
        self, library: Library, name: str, on_first: Callable[[], Awaitable[None]]
    ) -> None:
        self._library = library
        self._name = name
        self._on_first = on_first
        self._is_seen = False

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._library, name)
        if self._is_seen or name == "close" or not iscoroutinefunction(member):
            return member

        async def ask(*arguments: Any, **more: Any) -> Any:
            await self._look()
            return await member(*arguments, **more)

        return ask

    async def _look(self) -> None:
        if self._is_seen:
            return
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
