"""One memory for every AI assistant.

`Memory` and `AsyncMemory` are the Python API. They and their types are loaded at the first use.
"""

TYPE_CHECKING = False  # as in `typing`, which not every hook loads

if TYPE_CHECKING:
    from everkept.api.async_memory import AsyncMemory
    from everkept.api.memory import Memory
    from everkept.api.results import (
        AddedTurns,
        Change,
        Context,
        Conversation,
        ConversationHit,
        Document,
        DocumentWrite,
        Entity,
        GraphPage,
        Hit,
        Neighbor,
        Project,
        Recall,
        Related,
        Relation,
        Remembered,
        Said,
        Turn,
        Walk,
    )
    from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused, Unavailable

__version__ = "0.1.0"

_RESULTS = "everkept.api.results"  # the module of everything else
_ERRORS = ("Conflict", "EverkeptError", "InvalidInput", "NotFound", "Refused", "Unavailable")
_MODULES = {
    "AsyncMemory": "everkept.api.async_memory",
    "Memory": "everkept.api.memory",
    **dict.fromkeys(_ERRORS, "everkept.errors"),
}

__all__ = [
    "AddedTurns",
    "AsyncMemory",
    "Change",
    "Conflict",
    "Context",
    "Conversation",
    "ConversationHit",
    "Document",
    "DocumentWrite",
    "Entity",
    "EverkeptError",
    "GraphPage",
    "Hit",
    "InvalidInput",
    "Memory",
    "Neighbor",
    "NotFound",
    "Project",
    "Recall",
    "Refused",
    "Related",
    "Relation",
    "Remembered",
    "Said",
    "Turn",
    "Unavailable",
    "Walk",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_MODULES.get(name, _RESULTS)), name)
    globals()[name] = found
    return found
