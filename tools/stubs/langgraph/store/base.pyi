"""What `everkept.integrations.langgraph` uses of langgraph-checkpoint, for the type checker."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

class Item:
    value: dict[str, Any]
    key: str
    namespace: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    def __init__(
        self, *, value: dict[str, Any], key: str, namespace: tuple[str, ...], created_at: datetime, updated_at: datetime
    ) -> None: ...

class SearchItem(Item):
    score: float | None
    def __init__(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: dict[str, Any],
        created_at: datetime,
        updated_at: datetime,
        score: float | None = None,
    ) -> None: ...

class GetOp(NamedTuple):
    namespace: tuple[str, ...]
    key: str
    refresh_ttl: bool = True

class SearchOp(NamedTuple):
    namespace_prefix: tuple[str, ...]
    filter: dict[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    query: str | None = None
    refresh_ttl: bool = True

class MatchCondition(NamedTuple):
    match_type: Literal["prefix", "suffix"]
    path: tuple[str, ...]

class ListNamespacesOp(NamedTuple):
    match_conditions: tuple[MatchCondition, ...] | None = None
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0

class PutOp(NamedTuple):
    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any] | None
    index: Literal[False] | list[str] | None = None
    ttl: float | None = None

Op: TypeAlias = GetOp | SearchOp | PutOp | ListNamespacesOp
Result: TypeAlias = Item | list[Item] | list[SearchItem] | list[tuple[str, ...]] | None

class TTLConfig(TypedDict, total=False):
    refresh_on_read: bool
    omit_expired: bool
    default_ttl: float | None
    sweep_interval_minutes: int | None

class BaseStore(ABC):
    supports_ttl: bool
    ttl_config: TTLConfig | None
    @abstractmethod
    def batch(self, ops: Iterable[Op]) -> list[Result]: ...
    @abstractmethod
    async def abatch(self, ops: Iterable[Op]) -> list[Result]: ...
    def __getattr__(self, name: str) -> Any: ...

class InvalidNamespaceError(ValueError): ...

def get_text_at_path(obj: Any, path: str | list[str]) -> list[str]: ...
def validate_op_namespace(op: Op) -> None: ...
