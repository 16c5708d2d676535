"""A session for the OpenAI Agents SDK: `EverkeptSession` keeps a conversation's items as documents of a project."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from agents import SessionSettings

from everkept import AsyncMemory, Document, DocumentWrite

ROOT = "openai-agents"
EVERYTHING = 2**31
_ITEM = "item"


class EverkeptSession:
    """A conversation in an open memory, with the protocol `agents.memory.Session`.

    Items come back unchanged and in order. `limit` of `settings` is the number of latest items that a run gets.
    """

    def __init__(self, session_id: str, memory: AsyncMemory, *, settings: SessionSettings | None = None) -> None:
        self.session_id = session_id
        self.session_settings = settings
        self._documents = memory.documents
        self._namespace = (ROOT, session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the latest items, oldest first: all of them without a limit."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return [_parse(each) for each in await self._read(limit)]

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items in one transaction."""
        writes = [
            DocumentWrite(self._namespace, uuid4().hex, {_ITEM: json.dumps(item)}, _get_text(item)) for item in items
        ]
        if writes:
            await self._documents.write(writes)

    async def pop_item(self) -> Any:
        """Remove and return the newest item, or None if there is none."""
        while newest := await self._read(1):
            if await self._documents.delete(self._namespace, newest[0].key):
                return _parse(newest[0])
        return None

    async def clear_session(self) -> None:
        """Remove all items."""
        if found := await self._read(None):
            await self._documents.write([DocumentWrite(self._namespace, each.key, None) for each in found])

    async def _read(self, limit: int | None) -> list[Document]:
        found = await self._documents.search(self._namespace, limit=EVERYTHING if limit is None else max(limit, 0))
        return found[::-1]


def _parse(found: Document) -> Any:
    return json.loads(found.value[_ITEM])  # as text, which keeps the order of the keys


def _get_text(item: Mapping[str, Any]) -> str:
    """Return what a person or the model said. Queries do not search other items, such as calls of tools."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = cast(list[Any], content) if isinstance(content, list) else []
    texts = (cast(Mapping[str, Any], part).get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))
