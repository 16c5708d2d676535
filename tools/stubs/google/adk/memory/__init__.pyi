"""What the tests use of google-adk, for the type checker."""

from typing import Any

def __getattr__(name: str) -> Any: ...
