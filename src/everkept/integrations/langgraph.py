"""A store for LangGraph: `EverkeptStore` keeps its items as documents of a project."""

import asyncio
import copy
import time
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    validate_op_namespace,
)

from everkept import Document, DocumentWrite, InvalidInput, Memory

Namespace = tuple[str, ...]


class EverkeptStore(BaseStore):
    """Items of LangGraph in an open memory, for blocking and asynchronous graphs.

    Queries search by words and by meaning, without an `index` configuration. `fields` are the paths whose texts they
    search, such as `["title", "chapters[*].text"]`; by default all texts of a value. Of `ttl`, the store reads all keys
    but `omit_expired`: an expired item is always hidden.
    """

    supports_ttl = True

    def __init__(self, memory: Memory, *, fields: Sequence[str] = (), ttl: TTLConfig | None = None) -> None:
        self._documents = memory.documents
        self._fields = fields
        self.ttl_config = ttl
        self._swept_at = time.monotonic()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations: all reads first, then all writes in one transaction."""
        listed = [*ops]
        for op in listed:
            validate_op_namespace(op)
        self._sweep_if_due()
        try:
            results = [self._read(op) for op in listed]
            if writes := [self._build_write(op) for op in listed if isinstance(op, PutOp)]:
                self._documents.write(writes)
        except InvalidInput as error:
            raise ValueError(str(error)) from error  # as other stores do
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations in a thread, like `batch`."""
        return await asyncio.to_thread(self.batch, [*ops])

    def sweep_ttl(self) -> int:
        """Erase expired items, which are hidden already. Return their number."""
        self._swept_at = time.monotonic()
        return self._documents.expire()

    def _sweep_if_due(self) -> None:
        minutes = (self.ttl_config or {}).get("sweep_interval_minutes")
        if minutes and time.monotonic() - self._swept_at >= minutes * 60:
            self.sweep_ttl()

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                found = self._documents.get(op.namespace, op.key, refresh_ttl=op.refresh_ttl)
                return None if found is None else Item(**_describe(found))
            case SearchOp():
                hits = self._documents.search(
                    op.namespace_prefix,
                    op.query,
                    filter=op.filter,
                    limit=op.limit,
                    offset=op.offset,
                    refresh_ttl=op.refresh_ttl,
                )
                return [SearchItem(**_describe(hit), score=hit.score) for hit in hits]
            case ListNamespacesOp():
                return self._list_namespaces(op)
            case PutOp():
                return None

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = [each for each in self._documents.namespaces() if all(_is_match(each, it) for it in conditions)]
        if op.max_depth is not None:
            found = sorted({each[: op.max_depth] for each in found})
        return found[op.offset : op.offset + op.limit]

    def _build_write(self, op: PutOp) -> DocumentWrite:
        if op.value is None:
            return DocumentWrite(op.namespace, op.key, None)
        paths = self._fields if op.index is None else op.index or ()
        texts = [text for path in paths for text in get_text_at_path(op.value, path)]
        text = None if op.index is None and not self._fields else "\n".join(texts)
        return DocumentWrite(op.namespace, op.key, op.value, text, op.ttl)


def _describe(found: Document) -> dict[str, Any]:
    return {
        "value": copy.deepcopy(found.value),  # plain, because graphs may change it
        "key": found.key,
        "namespace": found.namespace,
        "created_at": found.created_at,
        "updated_at": found.updated_at,
    }


def _is_match(namespace: Namespace, condition: MatchCondition) -> bool:
    wanted = condition.path
    part = namespace[: len(wanted)] if condition.match_type == "prefix" else namespace[-len(wanted) :]
    return len(part) == len(wanted) and all(label in ("*", own) for label, own in zip(wanted, part, strict=True))
