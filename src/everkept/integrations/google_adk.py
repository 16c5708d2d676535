"""A memory service for Google's Agent Development Kit: `EverkeptMemoryService`."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from google.adk.events import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai.types import Content, Part

from everkept import AsyncMemory, Document, DocumentWrite

ROOT = "google-adk"
MAX_RESULTS = 10
_DELETED: Mapping[str, Any] = {"deleted": True}  # remains, so the event is not stored again


def open_memory_service(uri: str, **_: Any) -> "EverkeptMemoryService":
    """Open the service for an address such as `everkept://PROJECT`, for a `services.yaml` of ADK."""
    return EverkeptMemoryService(AsyncMemory.open(project=urlsplit(uri).netloc or None))


class EverkeptMemoryService(BaseMemoryService):
    """Memories of agents in an open memory, apart for each app and user.

    What a session says is stored once per event, however often the session is added. Only text is kept, with its
    secrets masked.
    """

    def __init__(self, memory: AsyncMemory, *, max_results: int = MAX_RESULTS) -> None:
        self._documents = memory.documents
        self._max_results = max_results

    async def add_session_to_memory(self, session: Session) -> None:
        """Store the events of a session that are not stored yet."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store events that are not stored yet. Events without text are skipped."""
        metadata = {**(custom_metadata or {}), **({} if session_id is None else {"session_id": session_id})}
        entries = [
            MemoryEntry(
                id=event.id,
                content=event.content,
                author=event.author,
                timestamp=datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
                custom_metadata=metadata,
            )
            for event in events
            if event.content is not None
        ]
        await self._add((app_name, user_id), entries)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store memories. One whose id is stored already is not replaced."""
        entries = [
            entry.model_copy(
                update={
                    "id": entry.id or uuid4().hex,
                    "custom_metadata": {**(custom_metadata or {}), **entry.custom_metadata},
                }
            )
            for entry in memories
        ]
        await self._add((app_name, user_id), entries)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return what this user's sessions with this app said, by words and by meaning, best first."""
        if not query.strip():
            return SearchMemoryResponse()
        found = await self._documents.search((ROOT, app_name, user_id), query, limit=self._max_results)
        return SearchMemoryResponse(memories=[_build_entry(each) for each in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory by its id. It does not return when its session is added again."""
        if memory_id and await self._documents.get((ROOT, app_name, user_id), memory_id) is not None:
            await self._documents.write([DocumentWrite((ROOT, app_name, user_id), memory_id, _DELETED, text="")])

    async def _add(self, owner: tuple[str, str], entries: Sequence[MemoryEntry]) -> None:
        namespace = (ROOT, *owner)
        writes = list(_build_writes(namespace, entries))
        known = await self._documents.get_all([(namespace, write.key) for write in writes])
        if new := [write for write, found in zip(writes, known, strict=True) if found is None]:
            await self._documents.write(new)


def _build_writes(namespace: Sequence[str], entries: Sequence[MemoryEntry]) -> Iterator[DocumentWrite]:
    for entry in entries:
        parts = entry.content.parts or ()
        texts = [part.text for part in parts if part.text and part.text.strip() and not part.thought]
        if texts:
            value: dict[str, Any] = {
                "texts": texts,
                "role": entry.content.role,
                "author": entry.author,
                "timestamp": entry.timestamp,
                "metadata": entry.custom_metadata,
            }
            yield DocumentWrite(namespace, entry.id or uuid4().hex, value, "\n".join(texts), masked=True)


def _build_entry(found: Document) -> MemoryEntry:
    value = found.value
    return MemoryEntry(
        id=found.key,
        content=Content(role=value["role"], parts=[Part(text=text) for text in value["texts"]]),
        author=value["author"],
        timestamp=value["timestamp"],
        custom_metadata=copy.deepcopy(value["metadata"]),
    )
