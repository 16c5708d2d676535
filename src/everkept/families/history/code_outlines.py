"""What a piece of code defines, calls, imports and extends."""

import re
from collections.abc import Iterable, Iterator, Mapping
from time import thread_time
from typing import Literal

from everkept.families.history.code_parser import (
    LONGEST_PIECE,
    Parsed,
    Span,
    fragments,
    parsed,
    pieces,
)
from everkept.language.code_names import COMMON_RECEIVERS, COMMONPLACE
from everkept.values import Value, field

LONGEST_TEXT = 200_000  # characters; what is behind them is not read
PATIENCE = 2.0  # seconds of this thread, for what is no code; the longest code takes a tenth
MOST_NAMES = 200  # of each sort
LONGEST_NAME = 200  # characters

Kind = Literal["function", "method", "class", "interface", "type", "module", "variable"]


class Defined(Value):
    """A method's name is `Class.method`, where the class is shown."""

    name: str
    kind: Kind


class Called(Value):
    """`by` is the definition that the call stands in.

    A call of a method has its class too where the code tells it: of the own object, or of a class
    or module by its name.
    """

    name: str
    by: str | None = None


class Extended(Value):
    """`by` is the class that extends or implements it."""

    name: str
    by: str | None = None


class Imported(Value):
    """A module, or something out of one."""

    name: str
    is_module: bool = True


class Outline(Value):
    """In the order of the code, and each only once. Parts of names are joined by dots."""

    defines: tuple[Defined, ...] = ()
    calls: tuple[Called, ...] = ()
    imports: tuple[Imported, ...] = ()
    extends: tuple[Extended, ...] = ()


def outline(text: str, language: str | None) -> Outline:
    """What can be told of any text; nothing where the language has no grammar."""
    defines: dict[str, Defined] = {}
    calls: dict[Called, None] = {}
    imports: dict[Imported, None] = {}
    extends: dict[Extended, None] = {}
    for reading in _readings(text[:LONGEST_TEXT], language):
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


def _readings(text: str, language: str | None) -> Iterator["_Reading"]:
    until = thread_time() + PATIENCE
    for fragment in fragments(text, language):
        bound: dict[str, str] = {}
        around = ""
        for piece in pieces(fragment.text, LONGEST_PIECE):
            reading = _Reading(
                fragment.language or "",
                parsed(piece.text, fragment.language),
                around if piece.is_continued else "",
                bound,
            )
            yield reading
            around = reading.open_class()
            if thread_time() > until:
                return


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


class _Scope(Value, frozen=False):
    """A definition, or what holds some, with its place in the text.

    What it says of the code in it comes from those around it, where it does not tell itself.
    """

    sort: str
    name: str
    start: int
    end: int
    owner: str | None = None  # the class that it belongs to
    inside: str | None = None  # the class that code in it is of
    speaker: str | None = None  # who calls what is called in it
    own: str | None = None  # what it calls its own object

    @property
    def full_name(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner and self.sort == "function" else self.name

    def enter(self, outer: "_Scope | None") -> None:
        if outer is not None:
            if self.owner is None and outer.sort in _OWNERS:
                self.owner = outer.name
            self.inside, self.speaker = outer.inside, outer.speaker
            self.own = self.own or outer.own
        if self.sort in _OWNERS:
            self.inside = self.name
        elif self.sort == "function" and self.inside is None:
            self.inside = self.owner
        if self.sort in ("function", *_OWNERS):
            self.speaker = self.full_name


class _Reference(Value, frozen=False):
    sort: Literal["callee", "base"]
    name: str
    start: int
    receiver: str | None = None


class _Reading(Value, frozen=False):
    """A piece of text as it was read: its matches told apart, and its names resolved."""

    language: str
    parsed: Parsed
    around: str  # the class that it is cut out of
    bound: dict[str, str]  # imports as the code calls them, and those of the pieces before
    imports: list[Imported] = field(default_factory=list[Imported])
    _scopes: list[_Scope] = field(default_factory=list[_Scope])
    _references: list[_Reference] = field(default_factory=list[_Reference])

    def __post_init__(self) -> None:
        for found in self.parsed.found:
            self._take(found)
        self._scopes = _distinct(self._scopes)
        self._references.sort(key=lambda reference: reference.start)
        if self.around and not self.parsed.is_wrapped:
            self._scopes.insert(0, _Scope("members", self.around, -1, LONGEST_TEXT * 4))
        around: list[_Scope] = []
        for scope in self._scopes:
            scope.enter(_innermost(around, scope.start))
            around.append(scope)

    def definitions(self) -> Iterator[Defined]:
        for scope in self._scopes:
            kind = _DEFINITIONS.get(scope.sort)
            if kind is not None and scope.name:
                is_method = kind == "function" and scope.owner is not None
                yield Defined(scope.full_name, "method" if is_method else kind)

    def references(self) -> Iterator[Called | Extended]:
        methods = {scope.full_name for scope in self._scopes if scope.owner}
        around: list[_Scope] = []
        waiting = iter(self._scopes)
        coming = next(waiting, None)
        for reference in self._references:
            while coming is not None and coming.start <= reference.start:
                _innermost(around, coming.start)
                around.append(coming)
                coming = next(waiting, None)
            scope = _innermost(around, reference.start)
            if reference.sort == "base":
                yield Extended(reference.name, (scope.inside if scope else None) or None)
            elif name := self._called(reference, scope, methods):
                yield Called(name, (scope.speaker if scope else None) or None)

    def open_class(self) -> str:
        """The class that the text breaks off in, if it does."""
        owners = [scope for scope in self._scopes if scope.sort in _OWNERS]
        if self.language != "python":
            owners = [scope for scope in owners if scope.end > self.parsed.end]
        return owners[-1].name if owners else ""

    def _take(self, found: Mapping[str, Span]) -> None:
        if (module := found.get("import")) is not None:
            self._import(module.text, found.get("alias"))
        elif (imported := found.get("imported")) is not None:
            self._import(imported.text, found.get("alias"), is_module=False)
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
                sort, name = "members", self.around
            owner = found.get("owner")
            owned = _last(_clean(owner.text)) if owner and sort == "function" else None
            own = found.get("self")
            scope = _Scope(sort, name, whole.start, whole.end, owned or None)
            scope.own = own.text if own else None
            self._scopes.append(scope)

    def _refer(self, sort: Literal["callee", "base"], named: Span, receiver: Span | None) -> None:
        if name := _clean(named.text):
            told = receiver.text if receiver else None
            self._references.append(_Reference(sort, name, named.start, told))

    def _import(self, text: str, alias: Span | None, *, is_module: bool = True) -> None:
        for path, renamed in _imported(text, self.language):
            name = _clean(path)
            if name and name.strip("."):
                self.imports.append(Imported(name, is_module))
                last = name.rpartition("/")[2]
                called = alias.text if alias else renamed or _last(last)
                self.bound[called] = last if self.language in _BY_MODULE else _last(last)
                self.bound[name] = name

    def _called(self, call: _Reference, scope: _Scope | None, methods: set[str]) -> str | None:
        """The call's full name, as far as the code tells; None for what all code calls."""
        owner = scope.inside if scope else None
        common = COMMONPLACE.get(self.language, frozenset())
        receiver = call.receiver
        if receiver is None:
            if owner and self.language in _IMPLICIT and f"{owner}.{call.name}" in methods:
                return f"{owner}.{call.name}"
            return None if call.name in common else self.bound.get(call.name, call.name)
        if receiver in _OWN or (scope is not None and receiver == scope.own):
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


def _innermost(around: list[_Scope], place: int) -> _Scope | None:
    """Leaves those that end before the place."""
    while around and around[-1].end <= place:
        around.pop()
    return around[-1] if around else None


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
