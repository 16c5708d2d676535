"""The stores that a user has registered: names for folders that hold a bank."""

import json
from typing import Any, Literal, cast

from everkept.core.ports import Library
from everkept.errors import NotFound
from everkept.values import Value

StoreKind = Literal["local", "remote"]
_PREFIX = "bank store "


class Registered(Value):
    store_id: str
    path: str  # of the folder around the bank, or of the bank itself
    kind: StoreKind
    registered_at: int
    last_used_at: int


class Registry:
    """One note for each store, so that two who register at once do not undo each other."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def all(self) -> list[Registered]:
        """In the order they were registered."""
        notes = await self._library.notes(_PREFIX)
        found = [_read(key.removeprefix(_PREFIX), value) for key, value in notes.items()]
        return sorted(found, key=lambda store: (store.registered_at, store.store_id))

    async def get(self, store_id: str) -> Registered:
        value = await self._library.note(_PREFIX + store_id)
        if value is None:
            raise NotFound(
                "store",
                store_id,
                message=f'Store "{store_id}" not found in registry.',
                hint="list_stores shows what there is; register_store adds one.",
            )
        return _read(store_id, value)

    async def put(self, store: Registered) -> None:
        value = {
            "path": store.path,
            "kind": store.kind,
            "registered_at": store.registered_at,
            "last_used_at": store.last_used_at,
        }
        await self._library.set_note(
            _PREFIX + store.store_id, json.dumps(value, ensure_ascii=False)
        )

    async def remove(self, store_id: str) -> bool:
        """False where there was none."""
        if await self._library.note(_PREFIX + store_id) is None:
            return False
        await self._library.set_note(_PREFIX + store_id, None)
        return True


def _read(store_id: str, value: str) -> Registered:
    return Registered(store_id, **cast(dict[str, Any], json.loads(value)))
