"""What `everkept.integrations.google_adk` uses of google-adk, for the type checker."""

from typing import Any, Self

from google.genai.types import Content

class MemoryEntry:
    content: Content
    custom_metadata: dict[str, Any]
    id: str | None
    author: str | None
    timestamp: str | None
    def __init__(
        self,
        *,
        content: Content,
        custom_metadata: dict[str, Any] = ...,
        id: str | None = None,
        author: str | None = None,
        timestamp: str | None = None,
    ) -> None: ...
    def model_copy(self, *, update: dict[str, Any]) -> Self: ...
