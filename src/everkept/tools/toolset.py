"""Toolsets: ordered collections of tools, functions between them, and late loading."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from everkept.errors import Conflict, NotFound
from everkept.tools.schema import nearest
from everkept.tools.tool import Tool
from everkept.values import replace


class Toolset:
    """Tools by name, in a fixed order. A name stands once, aliases included."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._by_alias: dict[str, Tool] = {}
        for item in tools:
            for name in (item.name, *item.aliases):
                if name in self:
                    raise Conflict(f'Two tools are named "{name}".', tool=name)
            self._tools[item.name] = item
            self._by_alias |= dict.fromkeys(item.aliases, item)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools or name in self._by_alias

    def get(self, name: str) -> Tool:
        found = self._tools.get(name) or self._by_alias.get(name)
        if found is None:
            close = nearest(name, list(self._tools))
            hint = f"Did you mean `{close}`?" if close else "tools/list names what there is."
            raise NotFound("tool", name, hint=hint)
        return found


def combined(*toolsets: Iterable[Tool]) -> Toolset:
    return Toolset(item for toolset in toolsets for item in toolset)


def filtered(toolset: Iterable[Tool], keep: Callable[[Tool], bool]) -> Toolset:
    return Toolset(item for item in toolset if keep(item))


def renamed(toolset: Iterable[Tool], names: Mapping[str, str]) -> Toolset:
    """Tools under new names; those not mentioned keep theirs."""
    return Toolset(replace(item, name=names.get(item.name, item.name)) for item in toolset)


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
