"""A copy that is not finished yet: nothing but the command that finishes it may use it."""

from collections.abc import Awaitable, Callable
from shlex import quote

from everkept.app.migrating.addresses import address_in
from everkept.core.conditions import Condition
from everkept.core.library import Library, PassingLibrary
from everkept.errors import Refused

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
