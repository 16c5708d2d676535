"""Tools of several families, each of which is loaded when one of its tools is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from everkept.tools.tool import Tool
from everkept.tools.toolset import Toolset, combined


class LateToolset(Toolset):
    """A toolset whose families are made at the first need; a listing needs them all.

    `families` says which family a name probably belongs to. For any other name all are made.
    """

    def __init__(
        self, makers: Mapping[str, Callable[[], Sequence[Tool]]], families: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._makers = makers
        self._families = families
        self._parts: dict[str, Toolset] = {}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, name: object) -> bool:
        part = self._part(name)
        return (part is not None and name in part) or name in self._whole

    def get(self, name: str) -> Tool:
        part = self._part(name)
        return part.get(name) if part is not None and name in part else self._whole.get(name)

    @cached_property
    def _whole(self) -> Toolset:
        return combined(*(maker() for maker in self._makers.values()))

    def _part(self, name: object) -> Toolset | None:
        """Return the family that the name probably belongs to."""
        family = self._families.get(name) if isinstance(name, str) else None
        if family is None or family not in self._makers:
            return None
        if family not in self._parts:
            self._parts[family] = Toolset(self._makers[family]())
        return self._parts[family]
