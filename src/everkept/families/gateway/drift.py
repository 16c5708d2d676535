"""What has changed behind a gateway's file, found by asking the servers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from everkept.core.text import clipped
from everkept.errors import MOST_LISTED
from everkept.families.gateway.file_values import joined_path
from everkept.families.gateway.model import (
    JSON,
    REST,
    GatewayConfig,
    PassThrough,
    ToolConfig,
    fault_in,
    likeliest,
    mapped_there,
    named,
    passed,
    resolved,
)
from everkept.families.gateway.schema_check import first_mistake
from everkept.families.gateway.schema_facts import (
    KINDS,
    Root,
    Steps,
    TooIntricate,
    at,
    below,
    by_name,
    in_words,
    items,
    kinds,
    names,
    plain,
    required,
    values,
)
from everkept.values import Value

Level = Literal["error", "warning", "note"]

_DEEPEST = 5  # objects and lists inside each other; further down nobody looks


class Misfit(NamedTuple):
    """Something that ours allows and the other refuses; `place` is inside the value."""

    level: Level
    place: str
    message: str


class Side(NamedTuple):
    """A place in one of the two schemas."""

    place: Any
    root: Root

    @property
    def kinds(self) -> frozenset[str]:
        return kinds(self.place, self.root)

    @property
    def values(self) -> list[Any] | None:
        return values(self.place, self.root)

    @property
    def parts(self) -> list[JSON]:
        return plain(self.place, self.root)

    @property
    def names(self) -> list[str]:
        return names(self.place, self.root)

    @property
    def required(self) -> list[str]:
        return required(self.place, self.root)

    def refuses(self, value: Any) -> bool:
        return first_mistake(value, self.place, self.root) is not None

    def has(self, name: str) -> bool:
        """Whether there may be such a property."""
        return below(self.place, name, self.root) != []

    def down(self, name: str) -> "Side":
        return Side(at(self.place, [name], self.root), self.root)

    @property
    def items(self) -> "Side":
        return Side(items(self.place, self.root), self.root)

    @property
    def needed(self) -> list[str]:
        """The properties that must be given: one with a default need not, whatever is said."""
        return [
            name
            for name in self.required
            if not any("default" in part for part in self.down(name).parts)
        ]


def misfits(ours: Side, theirs: Side, place: str = "", depth: int = 0) -> Iterator[Misfit]:
    """What is not clear on either side is none."""
    allowed, taken = ours.kinds, theirs.kinds
    if allowed in (KINDS, frozenset()):
        return
    if not allowed & taken:
        message = f"takes {in_words(taken)}, and ours is {in_words(allowed)}"
        yield Misfit("error", place, message)
        return
    if allowed - taken:
        message = f"takes {in_words(taken)} alone, and ours may be {in_words(allowed - taken)}"
        yield Misfit("warning", place, message)
    if ours.values is not None or theirs.values is not None:
        yield from _lost_values(ours, theirs, place)
        return
    for misfit in _limits(ours, theirs):
        yield misfit._replace(place=place)
    if depth < _DEEPEST:
        yield from _inside(ours, theirs, place, depth + 1)


def shown_values(found: Sequence[Any]) -> str:
    return clipped(", ".join(json.dumps(value, ensure_ascii=False) for value in found))


def _lost_values(ours: Side, theirs: Side, place: str) -> Iterator[Misfit]:
    if ours.values is None:
        yield Misfit("warning", place, f"takes only {shown_values(theirs.values or ())}")
        return
    offered = [value for value in ours.values if not ours.refuses(value)]
    lost = [value for value in offered if theirs.refuses(value)]
    if lost:
        yield Misfit("error", place, f"does not take {shown_values(lost)}")


class _Limit(NamedTuple):
    """One end of what is allowed: the higher its rank, the less is."""

    rank: tuple[float, bool]
    said: str


def _limits(ours: Side, theirs: Side) -> Iterator[Misfit]:
    shared = ours.kinds & theirs.kinds
    for kind, keywords, said in _ENDS:
        if kind not in shared:
            continue
        own, other = _limit(ours.parts, keywords), _limit(theirs.parts, keywords)
        if other is not None and own is None and said:
            yield Misfit("note", "", f"takes {other.said}, and ours does not say so")
        elif other is not None and own is not None and own.rank < other.rank:
            yield Misfit("warning", "", f"takes {other.said}, and ours {own.said}")


def _limit(parts: Sequence[JSON], keywords: Mapping[str, tuple[str, int, bool]]) -> _Limit | None:
    """The strictest that is said."""
    found = [
        _Limit((sign * cast(float, part[word]), excludes), words.format(f"{part[word]:,}"))
        for part in parts
        for word, (words, sign, excludes) in keywords.items()
        if isinstance(part.get(word), int | float) and not isinstance(part[word], bool)
    ]
    return max(found, default=None, key=lambda limit: limit.rank)


# Of which kind of value, the keywords, and whether a limit that only they have is worth a note:
# that an empty text is refused goes without saying.
_ENDS: Sequence[tuple[str, Mapping[str, tuple[str, int, bool]], bool]] = (
    (
        "integer",
        {"minimum": ("at least {}", 1, False), "exclusiveMinimum": ("more than {}", 1, True)},
        True,
    ),
    (
        "integer",
        {"maximum": ("at most {}", -1, False), "exclusiveMaximum": ("less than {}", -1, True)},
        True,
    ),
    ("string", {"minLength": ("at least {} characters", 1, False)}, False),
    ("string", {"maxLength": ("at most {} characters", -1, False)}, True),
    ("array", {"minItems": ("at least {} items", 1, False)}, False),
    ("array", {"maxItems": ("at most {} items", -1, False)}, True),
)


def _inside(ours: Side, theirs: Side, place: str, depth: int) -> Iterator[Misfit]:
    shared = ours.kinds & theirs.kinds
    if "array" in shared:
        yield from misfits(ours.items, theirs.items, f"{place}[]", depth)
    if "object" not in shared:
        return
    for name in ours.names:
        at_name = f"{place}.{name}"
        if not theirs.has(name) and ours.has(name):
            yield Misfit("error", place, f"has no `{name}`")
        else:
            yield from misfits(ours.down(name), theirs.down(name), at_name, depth)
    given = set(ours.required)
    for name in theirs.needed:
        if name not in given:
            yield Misfit("warning", place, f"needs `{name}`, which ours may leave out")


Path = tuple[str, ...]

_STEPS_OF_A_GUESS = 1_000  # what was meant instead


class Difference(NamedTuple):
    level: Level
    message: str
    fix: str = ""
    where: tuple[str, ...] = ()  # in the entry that it is about


class _Sent(NamedTuple):
    """A value that goes into the arguments of the server's tool."""

    path: Path
    parameter: str | None  # of ours; None for a constant, REST for all that has no entry
    is_always: bool  # in every call
    fixed: tuple[Any, ...] = ()  # the constant, or the default
    has_entry: bool = True  # of its own

    @property
    def source(self) -> str:
        return "a constant" if self.parameter is None else f"`{self.parameter}`"

    @property
    def where(self) -> tuple[str, ...]:
        if self.parameter is None:
            return ("constants", joined_path(self.path))
        return ("paramMapping", self.parameter if self.has_entry else REST)


def differences(tool: ToolConfig, schema: JSON, steps: Steps) -> Iterator[Difference]:
    """What calls of the tool would meet, given the inputSchema of the one behind it."""
    try:
        yield from _differences(tool, Root(tool.input_schema, steps), Root(schema, steps))
    except (TooIntricate, RecursionError):
        yield Difference("warning", "the rest of it is too intricate to be compared.")


def _differences(tool: ToolConfig, ours: Root, theirs: Root) -> Iterator[Difference]:
    sent = _sent(tool, ours)
    if tool.rest is not None:
        sent += _rest(tool, tool.rest, sent, ours, theirs)
    for each in sent:
        yield from _at_its_place(each, ours, theirs)
    yield from _missing(sent, theirs)
    yield from _unused(sent, theirs)


def listed(names: Sequence[str]) -> str:
    """As many as a sentence bears."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(f"`{clipped(name)}`" for name in names[:MOST_LISTED]) + more


def suggestion(name: str, known: Sequence[str]) -> str:
    close = likeliest(name, known)
    if close is not None:
        return f"Did you mean `{close}`?"
    return f"There are: {listed(known)}." if known else "There is none at all."


def _sent(tool: ToolConfig, ours: Root) -> list[_Sent]:
    needed = set(required(ours.schema, ours))
    given = [
        _Sent(
            path,
            parameter,
            parameter in needed or parameter in tool.defaults,
            (tool.defaults[parameter],) if parameter in tool.defaults else (),
        )
        for parameter, path in tool.mapping.items()
    ]
    constant = [_Sent(path, None, True, (value,)) for path, value in tool.constants.items()]
    return [*given, *constant]


def _rest(
    tool: ToolConfig, rest: Path, sent: Sequence[_Sent], ours: Root, theirs: Root
) -> list[_Sent]:
    """What goes without an entry: the parameters that we name, those that the server names and we
    allow, and the object around them, which is always sent."""
    here, there = Side(ours.schema, ours), Side(at(theirs.schema, rest, theirs), theirs)
    if there.place is False:
        return [_Sent(rest, REST, True)]
    filled = {each.path[: len(rest) + 1] for each in sent}
    needed = set(here.required)
    free = [
        name
        for name in dict.fromkeys((*here.names, *(n for n in there.names if here.has(n))))
        if name != REST and name not in tool.mapping and (*rest, name) not in filled
    ]
    others = [_Sent((*rest, name), name, name in needed, has_entry=False) for name in free]
    return [_Sent(rest, REST, True), *others] if rest else others


def _at_its_place(sent: _Sent, ours: Root, theirs: Root) -> Iterator[Difference]:
    for depth, key in enumerate(sent.path):
        above = Side(at(theirs.schema, sent.path[:depth], theirs), theirs)
        if not above.has(key):
            yield _gone(sent, sent.path[: depth + 1], above)
            return
    target = f"`{joined_path(sent.path)}` there"
    there = Side(at(theirs.schema, sent.path, theirs), theirs)
    for value in sent.fixed:
        if there.refuses(value):
            what = "the constant" if sent.parameter is None else f"the default of {sent.source}"
            message = f"{target} does not take {what}, {shown_values([value])}."
            where = sent.where if sent.parameter is None else ("defaults", sent.parameter)
            yield Difference("error", message, f"It takes {in_words(there.kinds)}.", where)
    if sent.parameter == REST:
        if "object" not in there.kinds:
            message = f"{target} takes {in_words(there.kinds)}, and `{REST}` makes it an object."
            yield Difference("error", message, "", sent.where)
    elif sent.parameter is not None:
        here = Side(at(ours.schema, [sent.parameter], ours), ours)
        for misfit in misfits(here, there):
            inside = f" (in `{sent.parameter}{misfit.place}`)" if misfit.place else ""
            yield Difference(
                misfit.level,
                f"{target} {misfit.message}{inside}.",
                f"Change {sent.source} in inputSchema.",
                ("properties", sent.parameter),
            )


def _gone(sent: _Sent, path: Path, above: Side) -> Difference:
    above.root.steps.take(_STEPS_OF_A_GUESS)
    *parents, key = path
    place = f"`{joined_path(parents)}` there" if parents else "the tool there"
    if "object" not in above.kinds:
        message = f"{place} takes {in_words(above.kinds)}, and nothing is inside that"
        return Difference("error", f"{message}: {sent.source} has no place.", "", sent.where)
    message = f"{place} has no `{key}`, where {sent.source} goes."
    return Difference("error", message, suggestion(key, above.names), sent.where)


def _missing(sent: Sequence[_Sent], theirs: Root) -> Iterator[Difference]:
    """What the server needs in each object that is made for it."""
    made = dict.fromkeys(
        each.path[:depth]
        for each in sent
        for depth in range(len(each.path) + (each.parameter == REST))
    )
    for place in made or {(): None}:
        there = Side(at(theirs.schema, place, theirs), theirs)
        inside = [each for each in sent if each.path[: len(place)] == place]
        for name in there.needed:
            theirs.steps.take(len(inside))
            yield from _unsent((*place, name), inside)


def _unsent(needed: Path, inside: Sequence[_Sent]) -> Iterator[Difference]:
    target = joined_path(needed)
    sources = [each for each in inside if each.path[: len(needed)] == needed]
    others = [each for each in inside if each not in sources]
    if not sources:
        is_always = len(needed) == 1 or any(each.is_always for each in others)
        yield Difference(
            "error" if is_always else "warning",
            f"the tool there needs `{target}`, which is never sent.",
            f"Map a parameter to `{target}`, or give it a value in `constants`.",
            ("paramMapping",),
        )
    elif not any(each.is_always for each in sources) and (others or len(needed) == 1):
        source = sources[0].source
        yield Difference(
            "warning",
            f"the tool there needs `{target}`, and a call may leave {source} out.",
            f"Require {source} in inputSchema, or give it a value in `defaults`.",
            sources[0].where,
        )


def _unused(sent: Sequence[_Sent], theirs: Root) -> Iterator[Difference]:
    there = Side(theirs.schema, theirs)
    used = {each.path[0] for each in sent} | set(there.needed)
    free = [name for name in there.names if name not in used]
    if free:
        yield Difference("note", f"the tool there also takes {listed(free)}.")


class Drift(Value):
    """A difference between the file and a server: an error fails calls, a warning some of them."""

    level: Level
    tool: str | None  # of ours, where it is about one
    message: str
    fix: str = ""
    line: int = 0

    def __str__(self) -> str:
        about = f"{self.tool}: " if self.tool else ""
        return f"line {self.line}: {about}{self.message}" + (f" {self.fix}" if self.fix else "")


def drift(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> list[Drift]:
    """Of one upstream, given its tools as it lists them; in the order of the file."""
    known = {tool["name"]: tool for tool in reversed(named(tools))}
    steps = Steps()
    found = [
        Drift(each.level, tool.name, each.message, each.fix, tool.line_of(*each.where))
        for tool in config.tools
        if tool.upstream == upstream
        for each in _of_tool(tool, known, steps)
    ]
    server = config.upstreams[upstream]
    if server.pass_through is None:
        about = _not_offered(config, upstream, list(reversed(known)))
    else:
        about = (*_chosen(server.pass_through, list(known)), *_passed(config, upstream, tools))
    return found + [
        Drift(each.level, None, each.message, each.fix, server.line_of(*each.where))
        for each in about
    ]


def clashes(config: GatewayConfig, listings: Mapping[str, Sequence[Any]]) -> list[Drift]:
    """Names that tools of two upstreams have here, both passed through."""
    owners: dict[str, str] = {}
    found: list[Drift] = []
    for upstream, tools in listings.items():
        for each in passed(config, upstream, tools):
            owner = owners.setdefault(each.ours, upstream)
            if owner != upstream:
                message = f"{owner} and {upstream} both have a tool `{each.ours}`."
                line = config.upstreams[upstream].line_of(each.theirs)
                found.append(Drift("error", each.ours, message, _TELL_APART, line))
    return found


_TELL_APART = "A `prefix`, or a new name in `rename`, tells them apart."


def _of_tool(tool: ToolConfig, known: Mapping[str, JSON], steps: Steps) -> Iterator[Difference]:
    name = resolved(tool.tool, known)
    if name is None:
        message = f"the server has no tool `{tool.tool}`."
        yield Difference("error", message, suggestion(tool.tool, list(known)), ("tool",))
        return
    if name != tool.tool:
        yield Difference(
            "note",
            f"`{tool.tool}` is called `{name}` there.",
            f"Write `{name}`, which spares a question at the first call.",
            ("tool",),
        )
    listing = known[name]
    yield from _promised(name, by_name(tool.annotations), by_name(listing.get("annotations")))
    schema = listing.get("inputSchema")
    if isinstance(schema, dict):
        yield from differences(tool, cast(JSON, schema), steps)


def _promised(name: str, ours: JSON, theirs: JSON) -> Iterator[Difference]:
    """Where the file says that a tool is milder than it says itself."""
    destroys = theirs.get("destructiveHint") is True and theirs.get("readOnlyHint") is not True
    writes = theirs.get("readOnlyHint") is False or destroys
    if ours.get("readOnlyHint") is True and writes:
        message = f"`{name}` says that it writes, and the file that it only reads."
        fix = "Take `readOnlyHint` out of its annotations."
        yield Difference("warning", message, fix, ("annotations",))
    elif ours.get("destructiveHint") is False and destroys:
        message = f"`{name}` says that it may destroy something, and the file that it does not."
        fix = "Take `destructiveHint` out of its annotations."
        yield Difference("warning", message, fix, ("annotations",))


def _not_offered(
    config: GatewayConfig, upstream: str, known: Sequence[str]
) -> Iterator[Difference]:
    mapped = mapped_there(config, upstream, known)
    free = [name for name in known if name not in mapped]
    if free:
        yield Difference(
            "note",
            f"the server also has {listed(free)}.",
            "An entry in `tools` offers one, `passThrough` all.",
        )


def _chosen(through: PassThrough, known: Sequence[str]) -> Iterator[Difference]:
    """The names that the file chooses of what is passed through."""
    for name in dict.fromkeys((*(through.only or ()), *through.rename)):
        if name not in known:
            message = f"the server has no tool `{name}`, which is to be passed through."
            yield Difference("error", message, suggestion(name, known), (name,))
    for name in through.hide:
        if name not in known:
            message = f"the server has no tool `{name}`, which is hidden."
            yield Difference("note", message, where=(name,))


def _passed(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> Iterator[Difference]:
    taken = {tool.name for tool in config.tools}
    for each in passed(config, upstream, tools):
        fault = fault_in(each.listing)
        if fault is not None:
            fix = "A new name in `rename` may help, or `hide` it."
            message = f"`{each.theirs}` is not offered: {fault}."
            yield Difference("warning", message, fix, (each.theirs,))
        elif each.ours in taken:
            message = f"`{each.theirs}` is not offered: there is a tool `{each.ours}` already."
            yield Difference("error", message, _TELL_APART, (each.theirs,))
        taken.add(each.ours)
