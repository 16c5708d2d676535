"""What `everkept.integrations.google_adk` uses of google-adk, for the type checker."""

from typing import Any

from google.adk.events import Event

class Session:
    id: str
    app_name: str
    user_id: str
    events: list[Event]
    def __init__(self, *, id: str, app_name: str, user_id: str, events: list[Event]) -> None: ...

def __getattr__(name: str) -> Any: ...
