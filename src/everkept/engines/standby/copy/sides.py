"""The two sides of one store: the database, and the copy here."""

from typing import Protocol

from everkept.core.ports import RecordStore
from everkept.engines.standby.copy.recent import RecentCommits


class Ends(Protocol):
    """Both sides of one store. They are looked for again whenever they may have changed."""

    @property
    def name(self) -> str:
        """As the journal has it."""
        ...

    @property
    def recent(self) -> RecentCommits:
        """What was stored there just now."""
        ...

    async def there(self) -> RecordStore: ...

    async def here(self) -> RecordStore: ...

    async def at_hand(self) -> RecordStore:
        """That here, made where the database went before its copy had come so far."""
        ...
