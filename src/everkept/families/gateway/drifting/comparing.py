"""One tool of the gateway's file beside the tool that it stands for, as its server has it now."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from everkept.core.text import clipped
from everkept.errors import MOST_LISTED
from everkept.families.gateway.drifting.fitting import Level, Side, misfits, shown_values
from everkept.families.gateway.file.paths import joined_path
from everkept.families.gateway.model import JSON, REST, ToolConfig
from everkept.families.gateway.naming import likeliest
from everkept.families.gateway.schemas.facts import at, in_words, required
from everkept.families.gateway.schemas.root import Root, Steps, TooIntricate

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
