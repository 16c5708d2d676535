"""What `everkept.integrations.openai_agents` uses of openai-agents, for the type checker."""

from typing import Any

class SessionSettings:
    limit: int | None
    def __init__(self, limit: int | None = None) -> None: ...

def __getattr__(name: str) -> Any: ...
