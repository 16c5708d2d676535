"""What `everkept.integrations.google_adk` uses of google-genai, for the type checker."""

from typing import Any

class Part:
    text: str | None
    thought: bool | None
    def __init__(self, *, text: str | None = None, thought: bool | None = None) -> None: ...

class Content:
    role: str | None
    parts: list[Part] | None
    def __init__(self, *, role: str | None = None, parts: list[Part] | None = None) -> None: ...

def __getattr__(name: str) -> Any: ...
