"""One tool of the gateway's file beside the tool that it stands for, as its server has it now."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from recollect.core.text import clipped
from recollect.errors import MOST_LISTED
from recollect.families.gateway.drifting.fitting import Level, Side, misfits, shown_values
from recollect.families.gateway.file.paths import joined_path
from recollect.families.gateway.model import JSON, ToolConfig
from recollect.families.gateway.naming import likeliest
from recollect.families.gateway.schemas.facts import at, in_words, required
from recollect.families.gateway.schemas.root import Root, Steps, TooIntricate

Path = tuple[str, ...]

_STEPS_OF_A_GUESS = 1_000  # what was meant instead


class Difference(NamedTuple):
    level: Level
    message: str
    fix: str = ""


class _Sent(NamedTuple):
    """A value that goes into the arguments of the server's tool."""

    path: Path
    parameter: str | None  # of ours; None for a constant
    is_always: bool  # in every call
    fixed: tuple[Any, ...]  # the constant, or the default

    @property
    def source(self) -> str:
        return "a constant" if self.parameter is None else f"`{self.parameter}`"


def differences(tool: ToolConfig, schema: JSON, steps: Steps) -> Iterator[Difference]:
    """What calls of the tool would meet, given the inputSchema of the one behind it."""
    try:
        yield from _differences(tool, Root(tool.input_schema, steps), Root(schema, steps))
    except (TooIntricate, RecursionError):
        yield Difference("warning", "the rest of it is too intricate to be compared.")


def _differences(tool: ToolConfig, ours: Root, theirs: Root) -> Iterator[Difference]:
    sent = _sent(tool, ours)
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
            yield Difference("error", message, f"It takes {in_words(there.kinds)}.")
    if sent.parameter is not None:
        here = Side(at(ours.schema, [sent.parameter], ours), ours)
        for misfit in misfits(here, there):
            inside = f" (in `{sent.parameter}{misfit.place}`)" if misfit.place else ""
            yield Difference(
                misfit.level,
                f"{target} {misfit.message}{inside}.",
                f"Change {sent.source} in inputSchema.",
            )


def _gone(sent: _Sent, path: Path, above: Side) -> Difference:
    above.root.steps.take(_STEPS_OF_A_GUESS)
    *parents, key = path
    place = f"`{joined_path(parents)}` there" if parents else "the tool there"
    if "object" not in above.kinds:
        message = f"{place} takes {in_words(above.kinds)}, and nothing is inside that"
        return Difference("error", f"{message}: {sent.source} has no place.")
    message = f"{place} has no `{key}`, where {sent.source} goes."
    return Difference("error", message, suggestion(key, above.names))


def _missing(sent: Sequence[_Sent], theirs: Root) -> Iterator[Difference]:
    """What the server needs in each object that is made for it."""
    made = dict.fromkeys(path.path[:depth] for path in sent for depth in range(len(path.path)))
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
        )
    elif not any(each.is_always for each in sources) and (others or len(needed) == 1):
        source = sources[0].source
        yield Difference(
            "warning",
            f"the tool there needs `{target}`, and a call may leave {source} out.",
            f"Require {source} in inputSchema, or give it a value in `defaults`.",
        )


def _unused(sent: Sequence[_Sent], theirs: Root) -> Iterator[Difference]:
    there = Side(theirs.schema, theirs)
    used = {each.path[0] for each in sent} | set(there.needed)
    free = [name for name in there.names if name not in used]
    if free:
        yield Difference("note", f"the tool there also takes {listed(free)}.")
