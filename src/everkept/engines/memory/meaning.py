"""What the reference engine knows of meanings and of use: vectors and access counts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from everkept.core.ports import Access, Embedded
from everkept.core.records import Match, Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Find = Callable[[str], Record | None]


class Meaning:
    """Derived and counted things beside the records: no change, and no part of an undo."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._vectors: dict[str, tuple[str, NDArray[np.float32]]] = {}
        self.moves = 0  # vectors that came or went
        self._accesses: dict[str, Access] = {}

    def put(self, model: str, items: Sequence[Embedded]) -> int:
        fitting = [
            item
            for item in items
            if (record := self._find(item.id))
            and record.deleted_at is None
            and record.version == item.version
        ]
        self._vectors |= {item.id: (model, item.vector) for item in fitting}
        self.moves += len(fitting)
        return len(fitting)

    def take_over(
        self, vectors: Mapping[str, Sequence[Embedded]], accesses: Mapping[str, Access]
    ) -> None:
        """Those of deleted records too, which keep what they have."""
        for model, items in vectors.items():
            for item in items:
                record = self._find(item.id)
                if record is not None and record.version == item.version:
                    self._vectors[item.id] = (model, item.vector)
        self._accesses |= {i: access for i, access in accesses.items() if self._find(i)}
        self.moves += 1  # whatever else it was that came or went

    def has(self, model: str, record_id: str) -> bool:
        return self._vectors.get(record_id, ("", None))[0] == model

    def of(self, model: str, ids: Sequence[str]) -> "dict[str, NDArray[np.float32]]":
        return {i: self._vectors[i][1] for i in ids if self.has(model, i)}

    def near(
        self, model: str, vector: "NDArray[np.float32]", records: Sequence[Record]
    ) -> list[Match]:
        found = [
            Match(r.id, r.parent, float(self._vectors[r.id][1] @ vector))
            for r in records
            if self.has(model, r.id)
        ]
        return sorted(found, key=lambda match: -match.score)

    def forget(self, ids: Collection[str], *, vectors_only: bool = False) -> None:
        for record_id in ids:
            self.moves += self._vectors.pop(record_id, None) is not None
            if not vectors_only:
                self._accesses.pop(record_id, None)

    def note(self, counts: Mapping[str, int], at: int) -> None:
        for record_id, count in counts.items():
            if self._find(record_id):
                known = self._accesses.get(record_id, Access(0, at))
                self._accesses[record_id] = Access(known.count + count, max(known.last_at, at))

    def accesses(self, ids: Sequence[str]) -> dict[str, Access]:
        return {i: self._accesses[i] for i in ids if i in self._accesses}

    def most_accessed(self, limit: int) -> dict[str, Access]:
        live = [i for i in self._accesses if (r := self._find(i)) and r.deleted_at is None]
        live.sort(key=lambda i: (-self._accesses[i].count, -self._accesses[i].last_at, i))
        return self.accesses(live[:limit])
