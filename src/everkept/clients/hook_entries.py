"""What is written into Claude Code's settings: a hook for each event that we answer."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.clients import jsonc
from everkept.clients.entries import EDITORS, Editor
from everkept.clients.programs import HOOK, arguments, is_program, words_of, words_of_line
from everkept.clients.shapes import Key, as_list, as_object, with_filled
from everkept.values import Value

HOOKS = "hooks"
TIMEOUT = 15  # seconds; a hook ends itself earlier
_SHELLS = "Bash|PowerShell"
_TOOLS = f"{_SHELLS}|Edit|MultiEdit|Write|NotebookEdit"

# Each event that we answer, and what its group says beside the hook.
EVENTS: Mapping[str, Mapping[str, str]] = {
    "SessionStart": {},
    "UserPromptSubmit": {},
    "PreCompact": {},
    "SessionEnd": {},
    "PostToolUse": {"matcher": _TOOLS},
    "PostToolUseFailure": {"matcher": _SHELLS},
}
# What would make something else of a hook of ours. One that is not waited for is called off when
# the session ends, and may come behind a later one.
_FORMER = ("args", "async")


class _Place(Value):
    """Where a hook of ours stands; `is_alone` in its group."""

    event: str
    group: int
    number: int
    is_alone: bool

    @property
    def path(self) -> tuple[Key, ...]:
        return HOOKS, self.event, self.group, HOOKS, self.number


class HooksPart(Value):
    """Our hooks among others'; `line` gives what the shell runs at an event.

    `launchers` as in `programs.arguments`.
    """

    file: Path
    line: Callable[[str], str]
    launchers: Collection[str] = ()

    @property
    def editor(self) -> Editor:
        return EDITORS["json"]

    @property
    def content(self) -> str:
        return self.editor.with_value("", (HOOKS,), {name: [self._group(name)] for name in EVENTS})

    def put(self, text: str) -> str:
        for event in EVENTS:
            text = self._with_hook(text, event)
        return text

    def taken(self, text: str) -> str:
        return _without_places(text, _places(jsonc.parsed(text), self.launchers))

    def others(self, values: Any) -> Any:
        hooks = dict(_hooks(values))
        for event, groups in _our_events(values):
            hooks[event] = _groups_of_others(groups, event, self.launchers)
            if not hooks[event]:
                del hooks[event]
        return with_filled(values, HOOKS, hooks)

    def is_in(self, values: Any) -> bool:
        return bool(_places(values, self.launchers))

    def _with_hook(self, text: str, event: str) -> str:
        values = jsonc.parsed(text)
        found = [place for place in _places(values, self.launchers) if place.event == event]
        group = self._group(event)
        if not found:
            groups = as_list(_hooks(values).get(event, []), (HOOKS, event))
            return jsonc.with_value(text, (HOOKS, event, len(groups)), group)
        first, *more = found
        return self._renewed(_without_places(text, more), first, group)

    def _renewed(self, text: str, place: _Place, group: Mapping[str, Any]) -> str:
        """Value by value: what somebody added to our hook stays as it is."""
        hook = group[HOOKS][0]
        for name in _FORMER:
            text = jsonc.without(text, (*place.path, name))
        for name, value in hook.items():
            text = jsonc.with_value(text, (*place.path, name), value)
        if place.is_alone and "matcher" in group:
            text = jsonc.with_value(text, (*place.path[:3], "matcher"), group["matcher"])
        return text

    def _group(self, event: str) -> dict[str, Any]:
        hook = {"type": "command", "command": self.line(event), "timeout": TIMEOUT}
        return {**EVENTS[event], HOOKS: [hook]}


def hooked_events(values: Any, launchers: Collection[str] = ()) -> tuple[str, ...]:
    """The events that a hook of ours stands under; Unfitting for hooks of another shape."""
    return tuple(dict.fromkeys(place.event for place in _places(values, launchers)))


def hooks_of_ours(values: Any, launchers: Collection[str] = ()) -> list[tuple[str, ...]]:
    """The words that each hook of ours runs."""
    hooks: list[tuple[str, ...]] = []
    for place in _places(values, launchers):
        hook: Any = values
        for key in place.path:
            hook = hook[key]
        hooks.append(_words(hook, launchers))
    return hooks


def _places(values: Any, launchers: Collection[str]) -> list[_Place]:
    return [
        _Place(event, group, number, is_alone=len(hooks) == 1)
        for event, groups in _our_events(values)
        for group, item in enumerate(groups)
        for hooks in [_hooks_of(item)]
        for number, hook in enumerate(hooks)
        if _is_ours(hook, event, launchers)
    ]


def _without_places(text: str, places: Sequence[_Place]) -> str:
    """From the last to the first, so that the others keep their numbers."""
    for place in reversed(places):
        text = jsonc.without(text, place.path)
        group = jsonc.parsed(text)[HOOKS][place.event][place.group]
        if not group[HOOKS]:
            text = _tidied(jsonc.without(text, place.path[:3]), place.event)
    return text


def _tidied(text: str, event: str) -> str:
    if not jsonc.parsed(text)[HOOKS][event]:
        text = jsonc.without(text, (HOOKS, event))
    return text if jsonc.parsed(text)[HOOKS] else jsonc.without(text, (HOOKS,))


def _groups_of_others(groups: Sequence[Any], event: str, launchers: Collection[str]) -> list[Any]:
    kept: list[Any] = []
    for group in groups:
        others = [hook for hook in _hooks_of(group) if not _tells_of_us(hook, event, launchers)]
        if len(others) == len(_hooks_of(group)):
            kept.append(group)
        elif others:
            kept.append({**group, HOOKS: others})
    return kept


def _is_ours(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Whether it starts this program for this event, with nothing but options behind it."""
    behind = arguments(_words(hook, launchers), HOOK, launchers)
    return bool(behind) and behind[0] == event and _are_options(behind[1:])


def _are_options(words: Sequence[str]) -> bool:
    apart = [word for word in words if not (word.startswith("--") and "=" in word)]
    return len(apart) % 2 == 0 and all(word.startswith("--") for word in apart[::2])


def _tells_of_us(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Asked of the text alone, so that a hook which `_is_ours` takes for ours wrongly is missed."""
    before, verb, _ = " ".join(words_of(hook)).partition(f" {HOOK} {event}")
    program = words_of_line(before)[-1:]
    return bool(verb and program) and is_program(program[0], launchers)


def _words(hook: Any, launchers: Collection[str]) -> tuple[str, ...]:
    """Of a line for the shell, or of a command with its arguments."""
    words = words_of(hook)
    return words_of_line(words[0], launchers) if len(words) == 1 else words


def _hooks_of(group: Any) -> list[Any]:
    hooks = cast(dict[str, Any], group).get(HOOKS) if isinstance(group, dict) else None
    return cast(list[Any], hooks) if isinstance(hooks, list) else []


def _hooks(values: Any) -> Mapping[str, Any]:
    return as_object(as_object(values).get(HOOKS, {}), (HOOKS,))


def _our_events(values: Any) -> Iterator[tuple[str, list[Any]]]:
    """Those that we answer, with their groups: what stands under others is never ours."""
    for event, groups in _hooks(values).items():
        if event in EVENTS:
            yield event, as_list(groups, (HOOKS, event))
