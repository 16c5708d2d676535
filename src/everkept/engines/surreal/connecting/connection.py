"""Statements to SurrealDB and what they gave, each of them checked."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from everkept.errors import InvalidInput, Unavailable

Values = Mapping[str, Any]

LONGER = 6  # times as long as a question may take, a write may: it keeps indexes in step

_WRITING = re.compile(r"\b(?:BEGIN|CREATE|INSERT|UPSERT|UPDATE|RELATE|DELETE|DEFINE|REMOVE)\b")


class Thrown(Exception):
    """A THROW of our own ended the transaction; nothing of it was kept."""


class Contended(Exception):
    """Another transaction came in between; nothing was kept, and the next attempt may do."""


class Existing(Contended):
    """A record of that id, or a value that must be unique, is there already."""


class TooLarge(Unavailable):
    """An answer is; whoever asks for less may get it."""


class Missing(Exception):
    """A table is not there: its database was removed, or is yet to be made. Version 3 says so."""


class Connection(Protocol):
    """One way to SurrealDB, for any number of tasks at once. Nothing is opened before it is used.

    Raises StoreAway where the database cannot be reached or went away, QueryTimeout where it is
    there and slow, StorageFull and StoreDamaged for what they say. What was to be written when
    time ran out was not; where that cannot be known it is StoreAway.
    """

    @property
    def openings(self) -> int:
        """How often it was opened: after each it may be another database, or an empty one."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the dialect of version 3; known once it was opened or used."""
        ...

    @property
    def version(self) -> str:
        """As the database tells it, or nothing; never a reason to choose a dialect."""
        ...

    async def open(self) -> None:
        """What the first use does by itself."""
        ...

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        """What each statement gave. Inside BEGIN and COMMIT the places of results differ between
        versions: such a text is for its effect alone."""
        ...

    async def close(self) -> None: ...


def within(namespace: str, database: str, statements: str) -> str:
    """A text that does not depend on what was chosen before it."""
    return f"USE NS {quoted(namespace)} DB {quoted(database)}; {statements}"


def writes(statements: str) -> bool:
    """Whether they change anything. Texts are ours alone: what a user says stands in values."""
    return _WRITING.search(statements) is not None


def placing(row: str, content: str) -> str:
    """What makes a row hold something, whether it is there or not.

    UPSERT would do, were there nothing else in its transaction: of what one writes both before
    and after an UPSERT, the state of an index included, the files of version 2 keep the former.
    """
    return (
        f"IF record::exists({row}) {{ UPDATE {row} CONTENT {content} RETURN NONE }} "
        f"ELSE {{ CREATE {row} CONTENT {content} RETURN NONE }}"
    )


def quoted(name: str) -> str:
    """A name of a namespace or database, as a text writes it."""
    if not name or not name.isprintable() or "`" in name or "\\" in name:
        raise InvalidInput(
            f"{name!r} cannot be the name of a namespace or database of SurrealDB.",
            hint="Use letters, digits, - and _.",
        )
    return f"`{name}`"
