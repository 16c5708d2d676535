"""What `everkept.integrations.google_adk` uses of google-adk, for the type checker."""

from google.genai.types import Content

class Event:
    id: str
    author: str
    content: Content | None
    timestamp: float
    def __init__(self, *, author: str, id: str = "", content: Content | None = None, timestamp: float = 0) -> None: ...
