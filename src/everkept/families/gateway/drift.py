"""Differences between a gateway's file and its servers, found by asking the servers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from everkept.core.text import clip_text
from everkept.errors import MAX_LISTED
from everkept.families.gateway.file_values import join_path
from everkept.families.gateway.model import (
    JSON,
    REST,
    GatewayConfig,
    PassThrough,
    ToolConfig,
    find_fault,
    find_likeliest,
    find_mapped,
    find_passed,
    resolve_name,
    select_named,
)
from everkept.families.gateway.schema_check import find_mistake
from everkept.families.gateway.schema_facts import (
    ALL_KINDS,
    SchemaRoot,
    SchemaTooComplex,
    StepBudget,
    as_object,
    find_items,
    find_kinds,
    find_property_schemas,
    find_values,
    format_kinds,
    list_names,
    list_parts,
    list_required,
    resolve_path,
)
from everkept.values import Value

Level = Literal["error", "warning", "note"]

_MAX_DEPTH = 5  # objects and lists inside each other; deeper ones are not compared


class SchemaMisfit(NamedTuple):
    """Something that our schema allows and the other refuses. `place` is inside the value."""

    level: Level
    place: str
    message: str


class SchemaSide(NamedTuple):
    """A place in one of the two schemas."""

    place: Any
    root: SchemaRoot

    @property
    def kinds(self) -> frozenset[str]:
        return find_kinds(self.place, self.root)

    @property
    def values(self) -> list[Any] | None:
        return find_values(self.place, self.root)

    @property
    def parts(self) -> list[JSON]:
        return list_parts(self.place, self.root)

    @property
    def names(self) -> list[str]:
        return list_names(self.place, self.root)

    @property
    def required_names(self) -> list[str]:
        return list_required(self.place, self.root)

    def is_refused(self, value: Any) -> bool:
        return find_mistake(value, self.place, self.root) is not None

    def has_property(self, name: str) -> bool:
        """Return whether an object may have this property."""
        return find_property_schemas(self.place, name, self.root) != []

    def get_property(self, name: str) -> "SchemaSide":
        return SchemaSide(resolve_path(self.place, [name], self.root), self.root)

    @property
    def items(self) -> "SchemaSide":
        return SchemaSide(find_items(self.place, self.root), self.root)

    @property
    def needed_names(self) -> list[str]:
        """Required properties without a default."""
        return [
            name for name in self.required_names if not any("default" in part for part in self.get_property(name).parts)
        ]


def find_misfits(ours: SchemaSide, theirs: SchemaSide, place: str = "", depth: int = 0) -> Iterator[SchemaMisfit]:
    """Yield the misfits between two schemas. Anything that is unclear on either side is not a misfit."""
    allowed, taken = ours.kinds, theirs.kinds
    if allowed in (ALL_KINDS, frozenset()):
        return
    if not allowed & taken:
        message = f"takes {format_kinds(taken)}, but ours is {format_kinds(allowed)}"
        yield SchemaMisfit("error", place, message)
        return
    if allowed - taken:
        message = f"takes only {format_kinds(taken)}, but ours may be {format_kinds(allowed - taken)}"
        yield SchemaMisfit("warning", place, message)
    if ours.values is not None or theirs.values is not None:
        yield from _find_lost_values(ours, theirs, place)
        return
    yield from _find_limit_misfits(ours, theirs, place)
    if depth < _MAX_DEPTH:
        yield from _find_inner_misfits(ours, theirs, place, depth + 1)


def format_values(found: Sequence[Any]) -> str:
    return clip_text(", ".join(json.dumps(value, ensure_ascii=False) for value in found))


def _find_lost_values(ours: SchemaSide, theirs: SchemaSide, place: str) -> Iterator[SchemaMisfit]:
    if ours.values is None:
        yield SchemaMisfit("warning", place, f"takes only {format_values(theirs.values or ())}")
        return
    offered = [value for value in ours.values if not ours.is_refused(value)]
    if lost := [value for value in offered if theirs.is_refused(value)]:
        yield SchemaMisfit("error", place, f"does not take {format_values(lost)}")


class _Limit(NamedTuple):
    """A lower or upper limit; a higher rank is stricter."""

    rank: tuple[float, bool]
    said: str


def _find_limit_misfits(ours: SchemaSide, theirs: SchemaSide, place: str) -> Iterator[SchemaMisfit]:
    shared = ours.kinds & theirs.kinds
    for kind, keywords, said in _LIMIT_KEYWORDS:
        if kind not in shared:
            continue
        own, other = _find_limit(ours.parts, keywords), _find_limit(theirs.parts, keywords)
        if other is not None and own is None and said:
            yield SchemaMisfit("note", place, f"takes {other.said}, but ours has no such limit")
        elif other is not None and own is not None and own.rank < other.rank:
            yield SchemaMisfit("warning", place, f"takes {other.said}, but ours {own.said}")


def _find_limit(parts: Sequence[JSON], keywords: Mapping[str, tuple[str, int, bool]]) -> _Limit | None:
    """Return the strictest limit."""
    found = [
        _Limit((sign * cast(float, part[word]), excludes), words.format(f"{part[word]:,}"))
        for part in parts
        for word, (words, sign, excludes) in keywords.items()
        if isinstance(part.get(word), int | float) and not isinstance(part[word], bool)
    ]
    return max(found, default=None, key=lambda limit: limit.rank)


# Type of the value, keywords, and whether a limit that only the server has is worth a note. That an empty text is
# refused needs no note.
_LIMIT_KEYWORDS: Sequence[tuple[str, Mapping[str, tuple[str, int, bool]], bool]] = (
    ("integer", {"minimum": ("at least {}", 1, False), "exclusiveMinimum": ("more than {}", 1, True)}, True),
    ("integer", {"maximum": ("at most {}", -1, False), "exclusiveMaximum": ("less than {}", -1, True)}, True),
    ("string", {"minLength": ("at least {} characters", 1, False)}, False),
    ("string", {"maxLength": ("at most {} characters", -1, False)}, True),
    ("array", {"minItems": ("at least {} items", 1, False)}, False),
    ("array", {"maxItems": ("at most {} items", -1, False)}, True),
)


def _find_inner_misfits(ours: SchemaSide, theirs: SchemaSide, place: str, depth: int) -> Iterator[SchemaMisfit]:
    shared = ours.kinds & theirs.kinds
    if "array" in shared:
        yield from find_misfits(ours.items, theirs.items, f"{place}[]", depth)
    if "object" not in shared:
        return
    for name in ours.names:
        at_name = f"{place}.{name}"
        if not theirs.has_property(name) and ours.has_property(name):
            yield SchemaMisfit("error", place, f"has no `{name}`")
        else:
            yield from find_misfits(ours.get_property(name), theirs.get_property(name), at_name, depth)
    given = set(ours.required_names)
    for name in theirs.needed_names:
        if name not in given:
            yield SchemaMisfit("warning", place, f"needs `{name}`, which ours may omit")


ArgumentPath = tuple[str, ...]

_GUESS_STEPS = 1_000  # cost of the search for a similar name


class ToolDifference(NamedTuple):
    level: Level
    message: str
    fix: str = ""
    where: tuple[str, ...] = ()  # keys of the part of the entry


class _SentValue(NamedTuple):
    """A value that is sent in the arguments of the server's tool."""

    path: ArgumentPath
    parameter: str | None  # ours; None for a constant, REST for all parameters without an entry
    is_always: bool  # whether every call sends it
    fixed: tuple[Any, ...] = ()  # the constant or the default
    has_entry: bool = True  # in `paramMapping`

    @property
    def source(self) -> str:
        return "a constant" if self.parameter is None else f"`{self.parameter}`"

    @property
    def entry_keys(self) -> tuple[str, ...]:
        if self.parameter is None:
            return ("constants", join_path(self.path))
        return ("paramMapping", self.parameter if self.has_entry else REST)


def find_differences(tool: ToolConfig, schema: JSON, steps: StepBudget) -> Iterator[ToolDifference]:
    """Yield the differences that calls of the tool would meet, given the server's inputSchema."""
    try:
        yield from _compare_schemas(tool, SchemaRoot(tool.input_schema, steps), SchemaRoot(schema, steps))
    except (SchemaTooComplex, RecursionError):
        yield ToolDifference("warning", "the rest is too complex to compare.")


def _compare_schemas(tool: ToolConfig, ours: SchemaRoot, theirs: SchemaRoot) -> Iterator[ToolDifference]:
    sent = _list_sent(tool, ours)
    if tool.rest is not None:
        sent += _list_rest(tool, tool.rest, sent, ours, theirs)
    for each in sent:
        yield from _check_place(each, ours, theirs)
    yield from _find_missing(sent, theirs)
    there = SchemaSide(theirs.schema, theirs)
    used = {each.path[0] for each in sent} | set(there.needed_names)
    if free := [name for name in there.names if name not in used]:
        yield ToolDifference("note", f"the server's tool also takes {format_names(free)}.")


def format_names(names: Sequence[str]) -> str:
    """List the names, at most MAX_LISTED."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(f"`{clip_text(name)}`" for name in names[:MAX_LISTED]) + more


def format_suggestion(name: str, known: Sequence[str]) -> str:
    close = find_likeliest(name, known)
    if close is not None:
        return f"Did you mean `{close}`?"
    return f"Known: {format_names(known)}." if known else "There are none."


def _list_sent(tool: ToolConfig, ours: SchemaRoot) -> list[_SentValue]:
    needed = set(list_required(ours.schema, ours))
    given = [
        _SentValue(
            path,
            parameter,
            parameter in needed or parameter in tool.defaults,
            (tool.defaults[parameter],) if parameter in tool.defaults else (),
        )
        for parameter, path in tool.mapping.items()
    ]
    constant = [_SentValue(path, None, True, (value,)) for path, value in tool.constants.items()]
    return [*given, *constant]


def _list_rest(
    tool: ToolConfig, rest: ArgumentPath, sent: Sequence[_SentValue], ours: SchemaRoot, theirs: SchemaRoot
) -> list[_SentValue]:
    """List the values that `*` sends: unmapped parameters that our schema allows, and the object around them."""
    here, there = (SchemaSide(ours.schema, ours), SchemaSide(resolve_path(theirs.schema, rest, theirs), theirs))
    if there.place is False:
        return [_SentValue(rest, REST, True)]
    filled = {each.path[: len(rest) + 1] for each in sent}
    needed = set(here.required_names)
    free = [
        name
        for name in dict.fromkeys((*here.names, *(n for n in there.names if here.has_property(n))))
        if name != REST and name not in tool.mapping and (*rest, name) not in filled
    ]
    others = [_SentValue((*rest, name), name, name in needed, has_entry=False) for name in free]
    return [_SentValue(rest, REST, True), *others] if rest else others


def _check_place(sent: _SentValue, ours: SchemaRoot, theirs: SchemaRoot) -> Iterator[ToolDifference]:
    for depth, key in enumerate(sent.path):
        above = SchemaSide(resolve_path(theirs.schema, sent.path[:depth], theirs), theirs)
        if not above.has_property(key):
            yield _build_gone(sent, sent.path[: depth + 1], above)
            return
    target = f"`{join_path(sent.path)}` at the server"
    there = SchemaSide(resolve_path(theirs.schema, sent.path, theirs), theirs)
    for value in sent.fixed:
        if there.is_refused(value):
            what = "the constant" if sent.parameter is None else f"the default of {sent.source}"
            message = f"{target} does not take {what}, {format_values([value])}."
            where = sent.entry_keys if sent.parameter is None else ("defaults", sent.parameter)
            yield ToolDifference("error", message, f"It takes {format_kinds(there.kinds)}.", where)
    if sent.parameter == REST:
        if "object" not in there.kinds:
            message = f"{target} takes {format_kinds(there.kinds)}, but `{REST}` sends an object."
            yield ToolDifference("error", message, "", sent.entry_keys)
    elif sent.parameter is not None:
        here = SchemaSide(resolve_path(ours.schema, [sent.parameter], ours), ours)
        for misfit in find_misfits(here, there):
            inside = f" (in `{sent.parameter}{misfit.place}`)" if misfit.place else ""
            yield ToolDifference(
                misfit.level,
                f"{target} {misfit.message}{inside}.",
                f"Change {sent.source} in inputSchema.",
                ("properties", sent.parameter),
            )


def _build_gone(sent: _SentValue, path: ArgumentPath, above: SchemaSide) -> ToolDifference:
    above.root.steps.take(_GUESS_STEPS)
    *parents, key = path
    place = f"`{join_path(parents)}` at the server" if parents else "the server's tool"
    if "object" not in above.kinds:
        message = f"{place} takes {format_kinds(above.kinds)}, so {sent.source} cannot be inside it."
        return ToolDifference("error", message, "", sent.entry_keys)
    message = f"{place} has no `{key}` for {sent.source}."
    return ToolDifference("error", message, format_suggestion(key, above.names), sent.entry_keys)


def _find_missing(sent: Sequence[_SentValue], theirs: SchemaRoot) -> Iterator[ToolDifference]:
    """Yield what the server needs in each object that is sent."""
    made = dict.fromkeys(
        each.path[:depth] for each in sent for depth in range(len(each.path) + (each.parameter == REST))
    )
    for place in made or {(): None}:
        there = SchemaSide(resolve_path(theirs.schema, place, theirs), theirs)
        inside = [each for each in sent if each.path[: len(place)] == place]
        for name in there.needed_names:
            theirs.steps.take(len(inside))
            yield from _find_unsent((*place, name), inside)


def _find_unsent(needed: ArgumentPath, inside: Sequence[_SentValue]) -> Iterator[ToolDifference]:
    target = join_path(needed)
    sources = [each for each in inside if each.path[: len(needed)] == needed]
    others = [each for each in inside if each not in sources]
    if not sources:
        is_always = len(needed) == 1 or any(each.is_always for each in others)
        yield ToolDifference(
            "error" if is_always else "warning",
            f"the server's tool needs `{target}`, which is never sent.",
            f"Map a parameter to `{target}`, or give it a value in `constants`.",
            ("paramMapping",),
        )
    elif not any(each.is_always for each in sources) and (others or len(needed) == 1):
        source = sources[0].source
        yield ToolDifference(
            "warning",
            f"the server's tool needs `{target}`, but a call may omit {source}.",
            f"Require {source} in inputSchema, or give it a value in `defaults`.",
            sources[0].entry_keys,
        )


class Drift(Value):
    """A difference between the file and a server. An error fails all calls, a warning some of them."""

    level: Level
    tool: str | None  # our tool, if the difference is about one
    message: str
    fix: str = ""
    line: int = 0

    def __str__(self) -> str:
        about = f"{self.tool}: " if self.tool else ""
        return f"line {self.line}: {about}{self.message}" + (f" {self.fix}" if self.fix else "")


def find_drift(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> list[Drift]:
    """Compare one upstream's listed tools with the file; return differences in the order of the file."""
    known = {tool["name"]: tool for tool in reversed(select_named(tools))}
    steps = StepBudget()
    found = [
        Drift(each.level, tool.name, each.message, each.fix, tool.get_line(*each.where))
        for tool in config.tools
        if tool.upstream == upstream
        for each in _compare_tool(tool, known, steps)
    ]
    server = config.upstreams[upstream]
    if server.pass_through is None:
        about = _find_not_offered(config, upstream, list(reversed(known)))
    else:
        about = (*_find_unknown_choices(server.pass_through, list(known)), *_check_passed(config, upstream, tools))
    return found + [Drift(each.level, None, each.message, each.fix, server.get_line(*each.where)) for each in about]


def find_clashes(config: GatewayConfig, listings: Mapping[str, Sequence[Any]]) -> list[Drift]:
    """Find names that two upstreams both pass through."""
    owners: dict[str, str] = {}
    found: list[Drift] = []
    for upstream, tools in listings.items():
        for each in find_passed(config, upstream, tools):
            owner = owners.setdefault(each.ours, upstream)
            if owner != upstream:
                message = f"{owner} and {upstream} both have a tool `{each.ours}`."
                line = config.upstreams[upstream].get_line(each.theirs)
                found.append(Drift("error", each.ours, message, _RENAME_FIX, line))
    return found


_RENAME_FIX = "Distinguish them with a `prefix`, or with a new name in `rename`."


def _compare_tool(tool: ToolConfig, known: Mapping[str, JSON], steps: StepBudget) -> Iterator[ToolDifference]:
    name = resolve_name(tool.tool, known)
    if name is None:
        message = f"the server has no tool `{tool.tool}`."
        yield ToolDifference("error", message, format_suggestion(tool.tool, list(known)), ("tool",))
        return
    if name != tool.tool:
        yield ToolDifference(
            "note",
            f"`{tool.tool}` is called `{name}` at the server.",
            f"Write `{name}` to save a request at the first call.",
            ("tool",),
        )
    listing = known[name]
    yield from _check_annotations(name, as_object(tool.annotations), as_object(listing.get("annotations")))
    schema = listing.get("inputSchema")
    if isinstance(schema, dict):
        yield from find_differences(tool, cast(JSON, schema), steps)


def _check_annotations(name: str, ours: JSON, theirs: JSON) -> Iterator[ToolDifference]:
    """Yield a difference if the file declares a tool less dangerous than the server does."""
    destroys = theirs.get("destructiveHint") is True and theirs.get("readOnlyHint") is not True
    writes = theirs.get("readOnlyHint") is False or destroys
    if ours.get("readOnlyHint") is True and writes:
        message = f"the server says that `{name}` writes, but the file says that it only reads."
        fix = "Remove `readOnlyHint` from its annotations."
        yield ToolDifference("warning", message, fix, ("annotations",))
    elif ours.get("destructiveHint") is False and destroys:
        message = f"the server says that `{name}` may destroy data, but the file says that it does not."
        fix = "Remove `destructiveHint` from its annotations."
        yield ToolDifference("warning", message, fix, ("annotations",))


def _find_not_offered(config: GatewayConfig, upstream: str, known: Sequence[str]) -> Iterator[ToolDifference]:
    mapped = find_mapped(config, upstream, known)
    if free := [name for name in known if name not in mapped]:
        fix = "To offer one, add an entry to `tools`. To offer all, set `passThrough`."
        yield ToolDifference("note", f"the server also has {format_names(free)}.", fix)


def _find_unknown_choices(through: PassThrough, known: Sequence[str]) -> Iterator[ToolDifference]:
    """Yield the names in `only`, `rename` and `hide` that the server does not have."""
    for name in dict.fromkeys((*(through.only or ()), *through.rename)):
        if name not in known:
            message = f"the server has no tool `{name}` to pass through."
            yield ToolDifference("error", message, format_suggestion(name, known), (name,))
    for name in through.hide:
        if name not in known:
            message = f"the server has no tool `{name}` to hide."
            yield ToolDifference("note", message, where=(name,))


def _check_passed(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> Iterator[ToolDifference]:
    taken = {tool.name for tool in config.tools}
    for each in find_passed(config, upstream, tools):
        fault = find_fault(each.listing)
        if fault is not None:
            fix = "Give it a new name in `rename`, or `hide` it."
            message = f"`{each.theirs}` is not offered: {fault}."
            yield ToolDifference("warning", message, fix, (each.theirs,))
        elif each.ours in taken:
            message = f"`{each.theirs}` is not offered: a tool `{each.ours}` already exists."
            yield ToolDifference("error", message, _RENAME_FIX, (each.theirs,))
        taken.add(each.ours)
