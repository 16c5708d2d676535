"""Bytes to lines, with a bound on how long one may be."""

from dataclasses import dataclass

_KEPT = 4096  # bytes of either end of a line that is too long


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that was dropped because it is too long; its ends may tell what it was."""

    head: bytes
    tail: bytes


class Lines:
    """Takes bytes in any pieces, and gives whole lines without their ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of the line that is being dropped

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes | Overlong] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._taken())
        self._add(rest)
        return lines

    def rest(self) -> bytes:
        """What came after the last end of a line."""
        return b"".join(self._parts)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size <= self._limit:
            return
        whole = b"".join(self._parts)
        if self._head is None:
            self._head = whole[:_KEPT]
        self._parts = [whole[-_KEPT:]]

    def _taken(self) -> bytes | Overlong:
        whole, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return whole if head is None else Overlong(head, whole)
