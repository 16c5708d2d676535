"""What `everkept.integrations.google_adk` uses of google-adk, for the type checker."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session

class SearchMemoryResponse:
    memories: list[MemoryEntry]
    def __init__(self, *, memories: list[MemoryEntry] = ...) -> None: ...

class BaseMemoryService(ABC):
    @abstractmethod
    async def add_session_to_memory(self, session: Session) -> None: ...
    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None: ...
    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None: ...
    @abstractmethod
    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse: ...
    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None: ...
