"""What a piece of code defines, calls, imports and extends."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from recollect.families.history.code.commonplace import COMMON_RECEIVERS, COMMONPLACE
from recollect.families.history.code.fragments import fragments
from recollect.families.history.code.parsing import Parsed, Span, parsed

LONGEST_TEXT = 200_000  # characters; what is behind them is not read
MOST_NAMES = 200  # of each sort
LONGEST_NAME = 200  # characters

Kind = Literal["function", "method", "class", "interface", "type", "module", "variable"]


@dataclass(frozen=True, slots=True)
class Defined:
    """A method's name is `Class.method`, where the class is shown."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Called:
    """`by` is the definition that the call stands in.

    A call of a method has its class too where the code tells it: of the own object, or of a class
    or module by its name.
    """

    name: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Extended:
    """`by` is the class that extends or implements it."""

    name: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """In the order of the code, and each only once. Parts of names are joined by dots."""

    defines: tuple[Defined, ...] = ()
    calls: tuple[Called, ...] = ()
    imports: tuple[str, ...] = ()
    extends: tuple[Extended, ...] = ()


def outline(text: str, language: str | None) -> Outline:
    """What can be told of any text; nothing where the language has no grammar."""
    defines: dict[str, Defined] = {}
    calls: dict[Called, None] = {}
    imports: dict[str, None] = {}
    extends: dict[Extended, None] = {}
    for fragment in fragments(text[:LONGEST_TEXT], language):
        reading = _Reading(fragment.language or "", parsed(fragment.text, fragment.language))
        for defined in reading.definitions():
            defines.setdefault(defined.name, defined)
        imports |= dict.fromkeys(reading.imports)
        for name in reading.references():
            if isinstance(name, Called):
                calls[name] = None
            else:
                extends[name] = None
    return Outline(
        tuple(defines.values())[:MOST_NAMES],
        tuple(calls)[:MOST_NAMES],
        tuple(imports)[:MOST_NAMES],
        tuple(extends)[:MOST_NAMES],
    )


_DEFINITIONS: dict[str, Kind] = {
    "function": "function",
    "class": "class",
    "interface": "interface",
    "type": "type",
    "module": "module",
    "variable": "variable",
    "constant": "variable",
}
_OWNERS = ("class", "interface", "members")
_OWN = frozenset(("self", "cls", "this", "Self", "(*this)"))
# Where a method calls another of its class by the bare name.
_IMPLICIT = frozenset(("java", "csharp", "cpp"))
_BY_MODULE = frozenset(("python", "javascript", "typescript"))  # what is imported keeps its path
_PLAIN = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_CUT = re.compile(r"[<(\[{\s]")


@dataclass(slots=True)
class _Scope:
    """A definition with its place in the text, and then with the class that it belongs to."""

    sort: str
    name: str
    start: int
    end: int
    owner: str | None = None
    own: str | None = None  # what it calls its object

    @property
    def full_name(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner and self.sort == "function" else self.name


@dataclass(slots=True)
class _Reference:
    sort: Literal["callee", "base"]
    name: str
    start: int
    receiver: str | None = None


_Placed = TypeVar("_Placed", _Scope, _Reference)


@dataclass(slots=True)
class _Reading:
    """One reading of a text: its matches told apart, and its names resolved."""

    language: str
    parsed: Parsed
    imports: list[str] = field(default_factory=list[str])
    bound: dict[str, str] = field(default_factory=dict[str, str])  # imports as the code calls them
    _scopes: list[_Scope] = field(default_factory=list[_Scope])
    _references: list[_Reference] = field(default_factory=list[_Reference])

    def __post_init__(self) -> None:
        for found in self.parsed.found:
            self._take(found)
        self._scopes = _distinct(self._scopes)
        self._references.sort(key=lambda reference: reference.start)
        for scope, around in _nested(self._scopes, self._scopes):
            # A definition is around itself; whose it is tells the one before.
            outer = around[-2] if len(around) > 1 else None
            if scope.owner is None and outer is not None and outer.sort in _OWNERS:
                scope.owner = outer.name

    def definitions(self) -> Iterator[Defined]:
        for scope in self._scopes:
            kind = _DEFINITIONS.get(scope.sort)
            if kind is None or not scope.name:
                continue
            is_method = kind == "function" and scope.owner is not None
            yield Defined(scope.full_name, "method" if is_method else kind)

    def references(self) -> Iterator[Called | Extended]:
        methods = {scope.full_name for scope in self._scopes if scope.owner}
        for reference, around in _nested(self._references, self._scopes):
            owner = next((s.name for s in reversed(around) if s.sort in _OWNERS), None)
            if reference.sort == "base":
                yield Extended(reference.name, owner or None)
            elif name := self._called(reference, around, methods):
                named = (s.full_name for s in reversed(around) if s.sort in ("function", *_OWNERS))
                yield Called(name, next(named, None) or None)

    def _take(self, found: Mapping[str, Span]) -> None:
        if (imported := found.get("import")) is not None:
            self._import(imported.text, found.get("alias"))
        elif (base := found.get("base")) is not None:
            self._refer("base", base, None)
        elif (component := found.get("component")) is not None:
            if component.text[:1].isupper():
                self._refer("callee", component, None)
        elif (required := found.get("required")) is not None:
            if found["requires"].text == "require":
                self._import(required.text, None)
        elif (callee := found.get("callee")) is not None:
            self._refer("callee", callee, found.get("receiver"))
        else:
            self._define(found)

    def _define(self, found: Mapping[str, Span]) -> None:
        for sort in (*_DEFINITIONS, "members"):
            whole = found.get(sort)
            if whole is None:
                continue
            name = _clean(found["owner" if sort == "members" else "name"].text)
            if sort == "constant" and not name.isupper():
                return
            if self.parsed.is_wrapped and whole.start == 0:
                name = ""
            owner = found.get("owner")
            owned = _last(_clean(owner.text)) if owner and sort == "function" else None
            own = found.get("self")
            scope = _Scope(
                sort, name, whole.start, whole.end, owned or None, own.text if own else None
            )
            self._scopes.append(scope)

    def _refer(self, sort: Literal["callee", "base"], named: Span, receiver: Span | None) -> None:
        if name := _clean(named.text):
            told = receiver.text if receiver else None
            self._references.append(_Reference(sort, name, named.start, told))

    def _import(self, text: str, alias: Span | None) -> None:
        for path, renamed in _imported(text, self.language):
            name = _clean(path)
            if name and name.strip("."):
                self.imports.append(name)
                last = name.rpartition("/")[2]
                called = alias.text if alias else renamed or _last(last)
                self.bound[called] = last if self.language in _BY_MODULE else _last(last)
                self.bound[name] = name

    def _called(self, call: _Reference, around: list[_Scope], methods: set[str]) -> str | None:
        """The call's full name, as far as the code tells; None for what all code calls."""
        owner = next((scope.name for scope in reversed(around) if scope.sort in _OWNERS), None)
        method = next((scope for scope in reversed(around) if scope.sort == "function"), None)
        if owner is None and method is not None:
            owner = method.owner
        common = COMMONPLACE.get(self.language, frozenset())
        receiver = call.receiver
        if receiver is None:
            if owner and self.language in _IMPLICIT and f"{owner}.{call.name}" in methods:
                return f"{owner}.{call.name}"
            return None if call.name in common else self.bound.get(call.name, call.name)
        if receiver in _OWN or (method is not None and receiver == method.own):
            return f"{owner}.{call.name}" if owner else call.name
        path = _clean(receiver)
        if path in COMMON_RECEIVERS or path in common:
            return None
        if path in self.bound:
            return f"{self.bound[path]}.{call.name}"
        if _PLAIN.fullmatch(path) and path[0].isupper() and not path.isupper():
            return f"{path}.{call.name}"
        return None if call.name in common else call.name


def _distinct(scopes: Iterable[_Scope]) -> list[_Scope]:
    """In the order of the text; what two patterns saw is what the more telling one says."""
    telling = {sort: number for number, sort in enumerate(_DEFINITIONS)}
    best: dict[tuple[int, int], _Scope] = {}
    for scope in scopes:
        other = best.setdefault((scope.start, -scope.end), scope)
        if telling.get(scope.sort, 0) < telling.get(other.sort, 0):
            best[scope.start, -scope.end] = scope
    return [best[place] for place in sorted(best)]


def _nested(
    items: Iterable[_Placed], scopes: Iterable[_Scope]
) -> Iterator[tuple[_Placed, list[_Scope]]]:
    """Each item with the scopes around it, the innermost last; both in the order of the text."""
    waiting = iter(scopes)
    coming = next(waiting, None)
    around: list[_Scope] = []
    for item in items:
        while coming is not None and coming.start <= item.start:
            _enter(around, coming)
            coming = next(waiting, None)
        while around and around[-1].end <= item.start:
            around.pop()
        yield item, around


def _enter(around: list[_Scope], scope: _Scope) -> None:
    while around and around[-1].end <= scope.start:
        around.pop()
    around.append(scope)


def _clean(text: str) -> str:
    """A name without what is only written around it; empty where that is none."""
    name = text.strip().strip("\"'`<>&*!").replace("::", ".").replace("->", ".")
    name = _CUT.split(name, maxsplit=1)[0].strip(",;:")
    return name if len(name) <= LONGEST_NAME else ""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _imported(text: str, language: str) -> Iterator[tuple[str, str | None]]:
    """The paths of an import, each with its other name; `a::{b, c as d}` is two."""
    if language != "rust":
        yield text, None
        return
    prefixes, current = [""], ""
    for token in [*re.findall(r"[{},]|[^{},]+", text), ","]:
        if token == "{":
            prefixes.append(f"{prefixes[-1]}{current}"[:LONGEST_NAME])
            current = ""
        elif token in ("}", ","):
            path, _, renamed = current.partition(" as ")
            if path:
                whole = f"{prefixes[-1]}{path}".removesuffix("::self").removesuffix("::*")
                yield whole, renamed.strip() or None
            current = ""
            if token == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            current = token.strip()
