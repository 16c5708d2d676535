"""What is written into Claude Code's settings: a hook for each event that we answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from recollect.clients import jsonc
from recollect.clients.entries import EDITORS, Editor
from recollect.clients.programs import HOOK, is_ours, words_of, words_of_line
from recollect.clients.shapes import Key, as_list, as_object, with_filled

HOOKS = "hooks"
TIMEOUT = 5  # seconds; a hook ends itself earlier
_TOOLS = "Bash|Edit|Write|MultiEdit|NotebookEdit|PowerShell"

# Each event that we answer, and what its group says beside the hook.
EVENTS: Mapping[str, Mapping[str, str]] = {
    "SessionStart": {},
    "UserPromptSubmit": {},
    "PreCompact": {},
    "SessionEnd": {},
    "PostToolUse": {"matcher": _TOOLS},
    "PostToolUseFailure": {"matcher": _TOOLS},
}
# Of these the assistant expects no answer, so it need not wait.
_IN_BACKGROUND = frozenset({"PostToolUse", "PostToolUseFailure"})


@dataclass(frozen=True, slots=True)
class HooksPart:
    """Our hooks among others'; `line` gives what the shell runs at an event."""

    file: Path
    line: Callable[[str], str]

    @property
    def editor(self) -> Editor:
        return EDITORS["json"]

    @property
    def content(self) -> str:
        return self.editor.with_value("", (HOOKS,), {name: [self._group(name)] for name in EVENTS})

    def put(self, text: str) -> str:
        for event in EVENTS:
            text = self._with_hook(text, event)
        stale = [place for place in _places(jsonc.parsed(text)) if place.event not in EVENTS]
        return _without_places(text, stale, tidy=True)

    def taken(self, text: str, *, tidy: bool) -> str:
        return _without_places(text, _places(jsonc.parsed(text)), tidy=tidy)

    def others(self, values: Any) -> Any:
        hooks = {
            event: kept
            for event, groups in _hooks(values).items()
            if (kept := _groups_of_others(as_list(groups, (HOOKS, event))))
        }
        return with_filled(values, HOOKS, hooks)

    def is_in(self, values: Any) -> bool:
        return bool(_places(values))

    def _with_hook(self, text: str, event: str) -> str:
        values = jsonc.parsed(text)
        found = [place for place in _places(values) if place.event == event]
        group = self._group(event)
        if not found:
            groups = as_list(_hooks(values).get(event, []), (HOOKS, event))
            return jsonc.with_value(text, (HOOKS, event, len(groups)), group)
        first, *more = found
        text = _without_places(text, more, tidy=True)
        if first.is_alone:
            return jsonc.with_value(text, first.path[:3], group)
        return jsonc.with_value(text, first.path, group[HOOKS][0])

    def _group(self, event: str) -> dict[str, Any]:
        hook: dict[str, Any] = {"type": "command", "command": self.line(event), "timeout": TIMEOUT}
        if event in _IN_BACKGROUND:
            hook["async"] = True
        return {**EVENTS[event], HOOKS: [hook]}


def hooked_events(values: Any) -> tuple[str, ...]:
    """The events that a hook of ours stands under; Unfitting for hooks of another shape."""
    return tuple(dict.fromkeys(place.event for place in _places(values)))


def hooks_of_ours(values: Any) -> list[tuple[str, ...]]:
    """The words that each hook of ours runs."""
    hooks: list[tuple[str, ...]] = []
    for place in _places(values):
        hook: Any = values
        for key in place.path:
            hook = hook[key]
        hooks.append(_words(hook))
    return hooks


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a hook of ours stands; `is_alone` in its group."""

    event: str
    group: int
    number: int
    is_alone: bool

    @property
    def path(self) -> tuple[Key, ...]:
        return HOOKS, self.event, self.group, HOOKS, self.number


def _places(values: Any) -> list[_Place]:
    return [
        _Place(event, group, number, is_alone=len(hooks) == 1)
        for event, groups in _hooks(values).items()
        for group, item in enumerate(as_list(groups, (HOOKS, event)))
        for hooks in [_hooks_of(item)]
        for number, hook in enumerate(hooks)
        if _is_ours(hook)
    ]


def _without_places(text: str, places: Sequence[_Place], *, tidy: bool) -> str:
    """From the last to the first, so that the others keep their numbers."""
    for place in reversed(places):
        text = jsonc.without(text, place.path)
        group = jsonc.parsed(text)[HOOKS][place.event][place.group]
        if not group[HOOKS]:
            text = jsonc.without(text, place.path[:3])
            text = _tidied(text, place.event) if tidy else text
    return text


def _tidied(text: str, event: str) -> str:
    if not jsonc.parsed(text)[HOOKS][event]:
        text = jsonc.without(text, (HOOKS, event))
    return text if jsonc.parsed(text)[HOOKS] else jsonc.without(text, (HOOKS,))


def _groups_of_others(groups: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for group in groups:
        others = [hook for hook in _hooks_of(group) if not _is_ours(hook)]
        if len(others) == len(_hooks_of(group)):
            kept.append(group)
        elif others:
            kept.append({**group, HOOKS: others})
    return kept


def _is_ours(hook: Any) -> bool:
    return is_ours(_words(hook), HOOK)


def _words(hook: Any) -> tuple[str, ...]:
    """Of a line for the shell, or of a command with its arguments."""
    words = words_of(hook)
    return words_of_line(words[0]) if len(words) == 1 else words


def _hooks_of(group: Any) -> list[Any]:
    hooks = cast(dict[str, Any], group).get(HOOKS) if isinstance(group, dict) else None
    return cast(list[Any], hooks) if isinstance(hooks, list) else []


def _hooks(values: Any) -> Mapping[str, Any]:
    return as_object(as_object(values).get(HOOKS, {}), (HOOKS,))
