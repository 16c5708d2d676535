"""Definitions, calls, imports and base classes in a piece of code."""

import re
from collections.abc import Iterable, Iterator, Mapping
from time import thread_time
from typing import Literal

from everkept.families.history.code_parser import (
    MAX_PIECE_CHARACTERS,
    CapturedSpan,
    ParsedCode,
    parse_code,
    split_fragments,
    split_pieces,
)
from everkept.language.code_names import COMMON_CALLS, COMMON_RECEIVERS
from everkept.values import Value, field

MAX_TEXT_CHARACTERS = 200_000  # the rest is not read
OUTLINE_SECONDS = 2.0  # CPU time of this thread, for text that is not code; the longest code takes a tenth
MAX_NAMES = 200  # of each kind
MAX_NAME_CHARACTERS = 200

SymbolKind = Literal["function", "method", "class", "interface", "type", "module", "variable"]


class CodeDefinition(Value):
    """A definition. A method's name is `Class.method` if the class is shown."""

    name: str
    kind: SymbolKind


class CodeCall(Value):
    """A call inside the definition `by`. The name includes the class or module if the code shows it."""

    name: str
    by: str | None = None


class CodeInheritance(Value):
    """A base class or interface. `by` is the class that extends or implements it."""

    name: str
    by: str | None = None


class CodeImport(Value):
    """An imported module, or a name imported from one."""

    name: str
    is_module: bool = True


class CodeOutline(Value):
    """The names in the order of the code, each once. Dots join the parts of a name."""

    defines: tuple[CodeDefinition, ...] = ()
    calls: tuple[CodeCall, ...] = ()
    imports: tuple[CodeImport, ...] = ()
    extends: tuple[CodeInheritance, ...] = ()


def outline_code(text: str, language: str | None) -> CodeOutline:
    """Outline any text. The outline is empty if the language has no grammar."""
    defines: dict[str, CodeDefinition] = {}
    calls: dict[CodeCall, None] = {}
    imports: dict[CodeImport, None] = {}
    extends: dict[CodeInheritance, None] = {}
    for reading in _parse_pieces(text[:MAX_TEXT_CHARACTERS], language):
        for defined in reading.iter_definitions():
            defines.setdefault(defined.name, defined)
        imports |= dict.fromkeys(reading.imports)
        for name in reading.iter_references():
            if isinstance(name, CodeCall):
                calls[name] = None
            else:
                extends[name] = None
    return CodeOutline(
        tuple(defines.values())[:MAX_NAMES],
        tuple(calls)[:MAX_NAMES],
        tuple(imports)[:MAX_NAMES],
        tuple(extends)[:MAX_NAMES],
    )


def _parse_pieces(text: str, language: str | None) -> Iterator["_ParsedPiece"]:
    until = thread_time() + OUTLINE_SECONDS
    for fragment in split_fragments(text, language):
        bound: dict[str, str] = {}
        around = ""
        for piece in split_pieces(fragment.text, MAX_PIECE_CHARACTERS):
            reading = _ParsedPiece(
                fragment.language or "",
                parse_code(piece.text, fragment.language),
                around if piece.is_continued else "",
                bound,
            )
            yield reading
            around = reading.get_open_class()
            if thread_time() > until:
                return


_DEFINITION_KINDS: dict[str, SymbolKind] = {
    "function": "function",
    "class": "class",
    "interface": "interface",
    "type": "type",
    "module": "module",
    "variable": "variable",
    "constant": "variable",
}
_OWNER_SORTS = ("class", "interface", "members")
_SELF_NAMES = frozenset(("self", "cls", "this", "Self", "(*this)"))
# Languages in which a method calls others of its class by their plain names.
_IMPLICIT_SELF_LANGUAGES = frozenset(("java", "csharp", "cpp"))
# Languages in which imported names keep the path of the module.
_MODULE_PATH_LANGUAGES = frozenset(("python", "javascript", "typescript"))
_PLAIN_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_NAME_END = re.compile(r"[<(\[{\s]")


class _CodeScope(Value, frozen=False):
    """A definition, or a container of definitions, with its position in the text."""

    sort: str
    name: str
    start: int
    end: int
    owner: str | None = None  # the class that it belongs to
    inside: str | None = None  # the class of the code inside it
    speaker: str | None = None  # the caller of the calls inside it
    own: str | None = None  # its name for its own object

    @property
    def full_name(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner and self.sort == "function" else self.name

    def enter(self, outer: "_CodeScope | None") -> None:
        """Inherit unknown properties from the scope around it."""
        if outer is not None:
            if self.owner is None and outer.sort in _OWNER_SORTS:
                self.owner = outer.name
            self.inside, self.speaker = outer.inside, outer.speaker
            self.own = self.own or outer.own
        if self.sort in _OWNER_SORTS:
            self.inside = self.name
        elif self.sort == "function" and self.inside is None:
            self.inside = self.owner
        if self.sort in ("function", *_OWNER_SORTS):
            self.speaker = self.full_name


class _CodeReference(Value, frozen=False):
    sort: Literal["callee", "base"]
    name: str
    start: int
    receiver: str | None = None


class _ParsedPiece(Value, frozen=False):
    """A parsed piece of text with its matches sorted by kind and its names resolved."""

    language: str
    parsed: ParsedCode
    around: str  # the class that the piece continues
    bound: dict[str, str]  # imports by their local names, including those of earlier pieces
    imports: list[CodeImport] = field(default_factory=list[CodeImport])
    _scopes: list[_CodeScope] = field(default_factory=list[_CodeScope])
    _references: list[_CodeReference] = field(default_factory=list[_CodeReference])

    def __post_init__(self) -> None:
        for found in self.parsed.found:
            self._handle_match(found)
        self._scopes = _merge_scopes(self._scopes)
        self._references.sort(key=lambda reference: reference.start)
        if self.around and not self.parsed.is_wrapped:
            self._scopes.insert(0, _CodeScope("members", self.around, -1, MAX_TEXT_CHARACTERS * 4))
        around: list[_CodeScope] = []
        for scope in self._scopes:
            scope.enter(_pop_to_innermost(around, scope.start))
            around.append(scope)

    def iter_definitions(self) -> Iterator[CodeDefinition]:
        for scope in self._scopes:
            kind = _DEFINITION_KINDS.get(scope.sort)
            if kind is not None and scope.name:
                is_method = kind == "function" and scope.owner is not None
                yield CodeDefinition(scope.full_name, "method" if is_method else kind)

    def iter_references(self) -> Iterator[CodeCall | CodeInheritance]:
        methods = {scope.full_name for scope in self._scopes if scope.owner}
        around: list[_CodeScope] = []
        waiting = iter(self._scopes)
        coming = next(waiting, None)
        for reference in self._references:
            while coming is not None and coming.start <= reference.start:
                _pop_to_innermost(around, coming.start)
                around.append(coming)
                coming = next(waiting, None)
            scope = _pop_to_innermost(around, reference.start)
            if reference.sort == "base":
                yield CodeInheritance(reference.name, (scope.inside if scope else None) or None)
            elif name := self._resolve_call(reference, scope, methods):
                yield CodeCall(name, (scope.speaker if scope else None) or None)

    def get_open_class(self) -> str:
        """Return the class in which the text ends, or an empty text."""
        owners = [scope for scope in self._scopes if scope.sort in _OWNER_SORTS]
        if self.language != "python":
            owners = [scope for scope in owners if scope.end > self.parsed.end]
        return owners[-1].name if owners else ""

    def _handle_match(self, found: Mapping[str, CapturedSpan]) -> None:
        if (module := found.get("import")) is not None:
            self._add_import(module.text, found.get("alias"))
        elif (imported := found.get("imported")) is not None:
            self._add_import(imported.text, found.get("alias"), is_module=False)
        elif (base := found.get("base")) is not None:
            self._add_reference("base", base, None)
        elif (component := found.get("component")) is not None:
            if component.text[:1].isupper():
                self._add_reference("callee", component, None)
        elif (required := found.get("required")) is not None:
            if found["requires"].text == "require":
                self._add_import(required.text, None)
        elif (callee := found.get("callee")) is not None:
            self._add_reference("callee", callee, found.get("receiver"))
        else:
            self._add_scope(found)

    def _add_scope(self, found: Mapping[str, CapturedSpan]) -> None:
        for sort in (*_DEFINITION_KINDS, "members"):
            whole = found.get(sort)
            if whole is None:
                continue
            name = _clean_name(found["owner" if sort == "members" else "name"].text)
            if sort == "constant" and not name.isupper():
                return
            if self.parsed.is_wrapped and whole.start == 0:
                sort, name = "members", self.around
            owner = found.get("owner")
            owned = _get_last_part(_clean_name(owner.text)) if owner and sort == "function" else None
            own = found.get("self")
            scope = _CodeScope(sort, name, whole.start, whole.end, owned or None)
            scope.own = own.text if own else None
            self._scopes.append(scope)

    def _add_reference(
        self, sort: Literal["callee", "base"], named: CapturedSpan, receiver: CapturedSpan | None
    ) -> None:
        if name := _clean_name(named.text):
            told = receiver.text if receiver else None
            self._references.append(_CodeReference(sort, name, named.start, told))

    def _add_import(self, text: str, alias: CapturedSpan | None, *, is_module: bool = True) -> None:
        for path, renamed in _parse_import(text, self.language):
            name = _clean_name(path)
            if name and name.strip("."):
                self.imports.append(CodeImport(name, is_module))
                last = name.rpartition("/")[2]
                called = alias.text if alias else renamed or _get_last_part(last)
                self.bound[called] = last if self.language in _MODULE_PATH_LANGUAGES else _get_last_part(last)
                self.bound[name] = name

    def _resolve_call(self, call: _CodeReference, scope: _CodeScope | None, methods: set[str]) -> str | None:
        """Return the full name of the call if the code shows it. Return None for names that all code calls."""
        owner = scope.inside if scope else None
        common = COMMON_CALLS.get(self.language, frozenset())
        receiver = call.receiver
        if receiver is None:
            if owner and self.language in _IMPLICIT_SELF_LANGUAGES and f"{owner}.{call.name}" in methods:
                return f"{owner}.{call.name}"
            return None if call.name in common else self.bound.get(call.name, call.name)
        if receiver in _SELF_NAMES or (scope is not None and receiver == scope.own):
            return f"{owner}.{call.name}" if owner else call.name
        path = _clean_name(receiver)
        if path in COMMON_RECEIVERS or path in common:
            return None
        if path in self.bound:
            return f"{self.bound[path]}.{call.name}"
        if _PLAIN_NAME.fullmatch(path) and path[0].isupper() and not path.isupper():
            return f"{path}.{call.name}"
        return None if call.name in common else call.name


def _merge_scopes(scopes: Iterable[_CodeScope]) -> list[_CodeScope]:
    """Sort the scopes by position. If two patterns match the same text, keep the more specific one."""
    telling = {sort: number for number, sort in enumerate(_DEFINITION_KINDS)}
    best: dict[tuple[int, int], _CodeScope] = {}
    for scope in scopes:
        other = best.setdefault((scope.start, -scope.end), scope)
        if telling.get(scope.sort, 0) < telling.get(other.sort, 0):
            best[scope.start, -scope.end] = scope
    return [best[place] for place in sorted(best)]


def _pop_to_innermost(around: list[_CodeScope], place: int) -> _CodeScope | None:
    """Drop the scopes that end before the position, and return the innermost one left."""
    while around and around[-1].end <= place:
        around.pop()
    return around[-1] if around else None


def _clean_name(text: str) -> str:
    """Return a name without the characters around it. Return an empty text if it is too long."""
    name = text.strip().strip("\"'`<>&*!").replace("::", ".").replace("->", ".")
    name = _NAME_END.split(name, maxsplit=1)[0].strip(",;:")
    return name if len(name) <= MAX_NAME_CHARACTERS else ""


def _get_last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _parse_import(text: str, language: str) -> Iterator[tuple[str, str | None]]:
    """Yield the imported paths, each with its alias: `a::{b, c as d}` has two."""
    if language != "rust":
        yield text, None
        return
    prefixes, current = [""], ""
    for token in [*re.findall(r"[{},]|[^{},]+", text), ","]:
        if token == "{":
            prefixes.append(f"{prefixes[-1]}{current}"[:MAX_NAME_CHARACTERS])
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
