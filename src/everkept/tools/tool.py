"""Tools and toolsets: a function, its schemas, and its effect on stored data."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from everkept.core.mcp import encode
from everkept.core.sessions import ToolCall
from everkept.errors import Conflict, InvalidInput, NotFound
from everkept.tools.schema import (
    JSON,
    REQUIRED,
    Parameter,
    Parse,
    build_object_parser,
    build_object_schema,
    build_parameter,
    build_value_schema,
    find_nearest,
    to_json,
)
from everkept.values import Value, is_value_type, replace

ERROR_SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "degraded": {"type": "boolean"},
        "retry_possible": {"type": "boolean"},
        "hint": {"type": "string"},
    },
    "required": ["error", "message", "degraded", "retry_possible"],
}


class Effect(Enum):
    """Effect of a call on stored data."""

    READS = "reads"
    SESSION_ONLY = "changes only the session"
    WRITES = "writes"
    REPEATABLE = "writes; a repeated call changes nothing"
    DESTROYS = "deletes or hides"
    PERMANENT = "deletes permanently"
    OUTSIDE = "decided by another server"


class ToolResult:
    """The result of a tool: facts, and a sentence if the contract requires one.

    The facts are encoded once, when it is first needed.
    """

    __slots__ = ("_encoded", "_structured", "sentence", "wire")

    def __init__(
        self, structured: JSON | None = None, sentence: str | None = None, *, wire: JSON | None = None
    ) -> None:
        self._structured = structured
        self._encoded: str | None = None
        self.sentence = sentence
        self.wire = wire  # result of another server, passed on unchanged

    @classmethod
    def from_value(cls, value: Any) -> "ToolResult":
        if isinstance(value, ToolResult):
            return value
        return cls(to_json(value), getattr(value, "sentence", None))

    @property
    def facts(self) -> JSON:
        return cast(JSON, self._structured)

    @property
    def facts_json(self) -> str:
        """The facts as compact JSON."""
        if self._encoded is None:
            self._encoded = encode(self._structured)
        return self._encoded

    @property
    def text(self) -> str:
        """The sentence, or the facts as JSON."""
        return self.facts_json if self.sentence is None else self.sentence

    @property
    def is_error(self) -> bool:
        return self.wire is not None and self.wire.get("isError") is True

    def __repr__(self) -> str:
        return f"Result({self.facts!r}, {self.sentence!r}, wire={self.wire!r})"


ELSEWHERE_CODE = "known_elsewhere"  # warning: another project has something close


class ToolWarning(Value):
    """Something that the caller should know although the call succeeded."""

    code: str
    message: str


def build_masking_warnings(kinds: Iterable[str]) -> list[ToolWarning]:
    """Return a warning if secrets were masked before they were stored."""
    found = ", ".join(kinds)
    return [ToolWarning("secret_masked", f"Masked before storing: {found}.")] if found else []


def build_elsewhere_warning(project: str, entity: str | None = None) -> ToolWarning:
    """Return a warning that another project has a close memory, or a close entity of this name."""
    found = "a close one" if entity is None else f'the entity "{entity}"'
    what, way = ("memory", "pass `all_projects`") if entity is None else ("entity", "pass `project`")
    message = f'No {what} here matches, but project "{project}" has {found}. To see it, {way}.'
    return ToolWarning(ELSEWHERE_CODE, message)


Run = Callable[[ToolCall, Mapping[str, Any]], Awaitable[ToolResult]]


class Tool(Value):
    """A tool as every surface sees it. `run` validates the arguments first."""

    name: str
    description: str
    input_schema: JSON
    run: Run
    effect: Effect = Effect.READS
    output_schema: JSON | None = None
    parameters: tuple[Parameter, ...] = ()
    adds_each_time: bool = False  # if the effect does not say it
    aliases: tuple[str, ...] = ()  # names that calls accept and lists omit
    listing: JSON | None = None  # tool of another server: its entry in tools/list
    view: str | None = None  # page that can draw the result in a chat
    said_to_read: bool = False  # tool of another server: a trusted source marks it read-only

    @property
    def is_read_only(self) -> bool:
        return self.effect in (Effect.READS, Effect.SESSION_ONLY) or self.said_to_read

    @property
    def annotations(self) -> JSON:
        if self.listing is not None:
            return cast(JSON, self.listing.get("annotations") or {})
        reads = self.effect is Effect.READS
        return {
            "title": self.name.replace("_", " ").capitalize(),
            "readOnlyHint": reads,
            "destructiveHint": self.effect in (Effect.DESTROYS, Effect.PERMANENT),
            "idempotentHint": self.effect is not Effect.WRITES and not self.adds_each_time,
            "openWorldHint": False,
        }


class _ToolMark(Value):
    """Details of a tool beyond its signature."""

    effect: Effect
    adds_each_time: bool
    aliases: tuple[str, ...]
    view: str | None


def tool(
    effect: Effect = Effect.READS,
    *,
    adds_each_time: bool = False,
    aliases: tuple[str, ...] = (),
    view: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a method as a tool. It stays an ordinary method.

    Set `adds_each_time` for a tool that destroys or selects, if repeating the call stores more. `view` names the page
    that can draw its result in a chat.
    """

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        method.__tool__ = _ToolMark(effect, adds_each_time, aliases, view)  # type: ignore[attr-defined]
        return method

    return mark


class ToolFamily:
    """A class whose marked methods become tools, in the order of their definition."""

    def list_tools(self) -> list[Tool]:
        marked = [
            (name, cast(_ToolMark, attribute.__tool__))
            for kind in reversed(type(self).__mro__)
            for name, attribute in vars(kind).items()
            if hasattr(attribute, "__tool__")
        ]
        return [
            replace(
                build_tool(getattr(self, name), marking.effect),
                adds_each_time=marking.adds_each_time,
                aliases=marking.aliases,
                view=marking.view,
            )
            for name, marking in marked
        ]


def build_tool(method: Callable[..., Awaitable[Any]], effect: Effect) -> Tool:
    """Build a tool from a method: name, description, schemas and validation."""
    form = _read_form(getattr(method, "__func__", method))

    async def run(call: ToolCall, arguments: Mapping[str, Any]) -> ToolResult:
        values = form.parser(_require_mapping(arguments), "")
        values.update(dict.fromkeys(form.wants_call, call))
        return ToolResult.from_value(await method(**values))

    return Tool(
        name=method.__name__,
        description=" ".join((method.__doc__ or "").split()),
        input_schema=form.input_schema,
        output_schema=form.output_schema,
        run=run,
        effect=effect,
        parameters=form.parameters,
    )


class _ToolForm:
    """What the signature of a function says about the calls of a tool. It is the same for all objects of a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True)
        given = [p for p in inspect.signature(function).parameters.values() if p.name in hints]
        self.wants_call = tuple(p.name for p in given if hints[p.name] is ToolCall)
        self.parameters = tuple(
            build_parameter(p.name, hints[p.name], REQUIRED if p.default is p.empty else p.default)
            for p in given
            if p.name not in self.wants_call
        )
        self.input_schema = build_object_schema(self.parameters)
        self.output_schema = _build_output_schema(hints["return"])

    @cached_property
    def parser(self) -> Parse:
        return build_object_parser(self.parameters)


@cache
def _read_form(function: Callable[..., Any]) -> _ToolForm:
    return _ToolForm(function)


def _build_output_schema(returned: Any) -> JSON | None:
    if get_origin(returned) is Annotated:  # Annotated[Result, X]: the JSON has the form of X
        returned = get_args(returned)[1]
    if not is_value_type(returned):
        return None
    # A failed call returns the error envelope, which must conform too.
    return {"type": "object", "anyOf": [build_value_schema(returned), ERROR_SCHEMA]}


def _require_mapping(arguments: Any) -> Mapping[str, Any]:
    if not isinstance(arguments, Mapping):
        raise InvalidInput("The arguments must be an object.", value=type(arguments).__name__)
    return arguments  # pyright: ignore[reportUnknownVariableType]


class Toolset:
    """Tools by name, in a fixed order. Names and aliases are unique."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._by_alias: dict[str, Tool] = {}
        for item in tools:
            for name in (item.name, *item.aliases):
                if name in self:
                    raise Conflict(f'Two tools are named "{name}".', hint="Rename one of them.", tool=name)
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
            close = find_nearest(name, list(self._tools))
            hint = f"Did you mean `{close}`?" if close else "Call tools/list to see the available tools."
            raise NotFound("tool", name, hint=hint)
        return found


def combine(*toolsets: Iterable[Tool]) -> Toolset:
    return Toolset(item for toolset in toolsets for item in toolset)


def select_tools(toolset: Iterable[Tool], keep: Callable[[Tool], bool]) -> Toolset:
    return Toolset(item for item in toolset if keep(item))


class LateToolset(Toolset):
    """A toolset that builds a family when one of its tools is first needed. A listing builds all.

    `families` maps tool names to their families. A call of another name builds all families.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Sequence[Tool]]], families: Mapping[str, str]) -> None:
        super().__init__()
        self._makers = makers
        self._families = families
        self._parts: dict[str, Toolset] = {}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._all_tools)

    def __len__(self) -> int:
        return len(self._all_tools)

    def __contains__(self, name: object) -> bool:
        part = self._find_family(name)
        return (part is not None and name in part) or name in self._all_tools

    def get(self, name: str) -> Tool:
        part = self._find_family(name)
        return part.get(name) if part is not None and name in part else self._all_tools.get(name)

    @cached_property
    def _all_tools(self) -> Toolset:
        return combine(*(maker() for maker in self._makers.values()))

    def _find_family(self, name: object) -> Toolset | None:
        """Return the family that probably has the tool."""
        family = self._families.get(name) if isinstance(name, str) else None
        if family is None or family not in self._makers:
            return None
        if family not in self._parts:
            self._parts[family] = Toolset(self._makers[family]())
        return self._parts[family]
