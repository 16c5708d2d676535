"""Hooks in the configuration of clients: their formats, and our entries among others."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from everkept.clients import jsonc
from everkept.clients.config_files import CLAUDE_CODE, Key, as_list, as_object, with_entry
from everkept.clients.entries import EDITORS, ConfigEditor
from everkept.clients.own_command import HOOK_VERB, find_arguments, get_command_words, is_program, split_line
from everkept.values import Value, field

HOOKS_KEY = "hooks"
HOOK_TIMEOUT_SECONDS = 15  # a hook ends itself earlier
CODEX_END_SECONDS = 3  # the longest that Codex allows at the end of a session
_COMMAND = {"type": "command"}
_SHELL_MATCHER = "Bash|PowerShell"
_TOOL_MATCHER = f"{_SHELL_MATCHER}|Edit|MultiEdit|Write|NotebookEdit"


class HookFormat(Value):
    """Form in which one client expects hooks."""

    events: Mapping[str, Mapping[str, str]]  # the events that we answer, with the other fields of their group
    client: str = ""  # passed to our hooks as --client, unless they answer in the form of Claude Code
    fields: Mapping[str, Any] = field(default_factory=lambda: _COMMAND)  # of a hook, besides command and timeout
    timeout: tuple[str, int] = ("timeout", HOOK_TIMEOUT_SECONDS)  # name of the field, and its value
    timeouts: Mapping[str, int] = field(default_factory=dict[str, int])  # of single events
    is_flat: bool = False  # an event lists hooks, not groups of hooks
    version: int | None = None  # of the format, at the top of the file

    def build_group(self, event: str, line: str) -> dict[str, Any]:
        """Return the item that an event lists for one hook."""
        name, most = self.timeout
        hook = {**self.fields, "command": line, name: self.timeouts.get(event, most)}
        return {**self.events[event], **hook} if self.is_flat else {**self.events[event], HOOKS_KEY: [hook]}


# PreCompact of Gemini CLI comes with every turn. VS Code, which reads the hooks of Copilot CLI, ignores matchers.
_COPILOT = HookFormat(
    events={"SessionStart": {}, "UserPromptSubmit": {}, "SessionEnd": {}, "PostToolUse": {}, "PostToolUseFailure": {}},
    client="copilot",
    timeout=("timeoutSec", HOOK_TIMEOUT_SECONDS),
    is_flat=True,
    version=1,
)
HOOK_FORMATS: Mapping[str, HookFormat] = {
    CLAUDE_CODE: HookFormat(
        events={
            "SessionStart": {},
            "UserPromptSubmit": {},
            "PreCompact": {},
            "SessionEnd": {},
            "PostToolUse": {"matcher": _TOOL_MATCHER},
            "PostToolUseFailure": {"matcher": _SHELL_MATCHER},
        }
    ),
    "codex": HookFormat(
        events={
            "SessionStart": {},
            "UserPromptSubmit": {},
            "PreCompact": {},
            "SessionEnd": {},
            "PostToolUse": {"matcher": "Bash|apply_patch"},
        },
        client="codex",
        timeouts={"SessionEnd": CODEX_END_SECONDS},
    ),
    "copilot": _COPILOT,
    "cursor": HookFormat(
        events={
            "sessionStart": {},
            "beforeSubmitPrompt": {},
            "preCompact": {},
            "sessionEnd": {},
            "postToolUse": {"matcher": "Shell|Write"},
            "postToolUseFailure": {"matcher": "Shell"},
        },
        client="cursor",
        fields={},
        is_flat=True,
        version=1,
    ),
    "gemini": HookFormat(
        events={
            "SessionStart": {},
            "BeforeAgent": {},
            "AfterTool": {"matcher": "run_shell_command|write_file|replace"},
            "SessionEnd": {},
        },
        client="gemini",
        fields={"name": "everkept", **_COMMAND},
        timeout=("timeout", HOOK_TIMEOUT_SECONDS * 1_000),
    ),
    "vscode": _COPILOT,
}
# Fields that change the meaning of our hook. An asynchronous hook is canceled when the session ends, and may run after
# a later one.
_OBSOLETE_KEYS = ("args", "async")
_VERSION_KEY = "version"


class _HookPosition(Value):
    """Position of one of our hooks. `is_alone`: the only one in its group."""

    event: str
    group: int
    number: int | None  # in its group; None in a flat format
    is_alone: bool

    @property
    def group_path(self) -> tuple[Key, ...]:
        return HOOKS_KEY, self.event, self.group

    @property
    def path(self) -> tuple[Key, ...]:
        return self.group_path if self.number is None else (*self.group_path, HOOKS_KEY, self.number)


class HooksConfigPart(Value):
    """Our hooks among others. `line` returns the shell command for an event.

    `launchers` is as in `own_command.find_arguments`.
    """

    file: Path
    line: Callable[[str], str]
    launchers: Collection[str] = ()
    form: HookFormat = HOOK_FORMATS[CLAUDE_CODE]

    @property
    def editor(self) -> ConfigEditor:
        return EDITORS["json"]

    @property
    def content(self) -> str:
        return self.insert("")

    def insert(self, text: str) -> str:
        if self.form.version is not None and _VERSION_KEY not in as_object(jsonc.parse_text(text)):
            text = jsonc.with_value(text, (_VERSION_KEY,), self.form.version)
        for event in self.form.events:
            text = self._with_hook(text, event)
        return text

    def remove(self, text: str) -> str:
        text = _remove_positions(text, self._find_positions(jsonc.parse_text(text)))
        is_bare = jsonc.parse_text(text) == {_VERSION_KEY: self.form.version}
        return jsonc.remove_value(text, (_VERSION_KEY,)) if is_bare else text

    def exclude_ours(self, values: Any) -> Any:
        hooks = dict(_get_hooks(values))
        for event, groups in _iterate_our_events(values, self.form):
            hooks[event] = _exclude_our_hooks(groups, event, self.form, self.launchers)
            if not hooks[event]:
                del hooks[event]
        rest = with_entry(values, HOOKS_KEY, hooks)
        return {} if rest == {_VERSION_KEY: self.form.version} else rest

    def is_present(self, values: Any) -> bool:
        return bool(self._find_positions(values))

    def _find_positions(self, values: Any) -> list[_HookPosition]:
        return _find_positions(values, self.form, self.launchers)

    def _with_hook(self, text: str, event: str) -> str:
        values = jsonc.parse_text(text)
        found = [place for place in self._find_positions(values) if place.event == event]
        group = self.form.build_group(event, self.line(event))
        if not found:
            groups = as_list(_get_hooks(values).get(event, []), (HOOKS_KEY, event))
            return jsonc.with_value(text, (HOOKS_KEY, event, len(groups)), group)
        first, *more = found
        return _update_hook(_remove_positions(text, more), first, group)


def _update_hook(text: str, place: _HookPosition, group: Mapping[str, Any]) -> str:
    """Update each value. Additions of other people to our hook are kept."""
    hook = group if place.number is None else group[HOOKS_KEY][0]
    for name in _OBSOLETE_KEYS:
        text = jsonc.remove_value(text, (*place.path, name))
    for name, value in hook.items():
        text = jsonc.with_value(text, (*place.path, name), value)
    if place.is_alone and "matcher" in group:
        text = jsonc.with_value(text, (*place.group_path, "matcher"), group["matcher"])
    return text


def list_hooked_events(values: Any, form: HookFormat, launchers: Collection[str] = ()) -> tuple[str, ...]:
    """Return the events with one of our hooks. Raise UnexpectedShape for hooks in another form."""
    return tuple(dict.fromkeys(place.event for place in _find_positions(values, form, launchers)))


def list_our_hooks(values: Any, form: HookFormat, launchers: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Return the command words of each of our hooks."""
    hooks: list[tuple[str, ...]] = []
    for place in _find_positions(values, form, launchers):
        hook: Any = values
        for key in place.path:
            hook = hook[key]
        hooks.append(_get_words(hook, launchers))
    return hooks


def _find_positions(values: Any, form: HookFormat, launchers: Collection[str]) -> list[_HookPosition]:
    return [
        _HookPosition(event, group, None if form.is_flat else number, is_alone=len(hooks) == 1)
        for event, groups in _iterate_our_events(values, form)
        for group, item in enumerate(groups)
        for hooks in [[item] if form.is_flat else _get_group_hooks(item)]
        for number, hook in enumerate(hooks)
        if _is_ours(hook, event, launchers)
    ]


def _remove_positions(text: str, places: Sequence[_HookPosition]) -> str:
    """Remove from last to first, so that the other numbers stay valid."""
    for place in reversed(places):
        text = jsonc.remove_value(text, place.path)
        if place.number is not None:
            group = jsonc.parse_text(text)[HOOKS_KEY][place.event][place.group]
            if group[HOOKS_KEY]:
                continue
            text = jsonc.remove_value(text, place.group_path)
        text = _remove_empty(text, place.event)
    return text


def _remove_empty(text: str, event: str) -> str:
    if not jsonc.parse_text(text)[HOOKS_KEY][event]:
        text = jsonc.remove_value(text, (HOOKS_KEY, event))
    return text if jsonc.parse_text(text)[HOOKS_KEY] else jsonc.remove_value(text, (HOOKS_KEY,))


def _exclude_our_hooks(groups: Sequence[Any], event: str, form: HookFormat, launchers: Collection[str]) -> list[Any]:
    if form.is_flat:
        return [hook for hook in groups if not _mentions_us(hook, event, launchers)]
    kept: list[Any] = []
    for group in groups:
        others = [hook for hook in _get_group_hooks(group) if not _mentions_us(hook, event, launchers)]
        if len(others) == len(_get_group_hooks(group)):
            kept.append(group)
        elif others:
            kept.append({**group, HOOKS_KEY: others})
    return kept


def _is_ours(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Return whether it starts this program for this event, followed only by options."""
    behind = find_arguments(_get_words(hook, launchers), HOOK_VERB, launchers)
    return bool(behind) and behind[0] == event and _are_options(behind[1:])


def _are_options(words: Sequence[str]) -> bool:
    apart = [word for word in words if not (word.startswith("--") and "=" in word)]
    return len(apart) % 2 == 0 and all(word.startswith("--") for word in apart[::2])


def _mentions_us(hook: Any, event: str, launchers: Collection[str]) -> bool:
    """Check only the text, so that a false match of `_is_ours` is detected."""
    before, verb, _ = " ".join(get_command_words(hook)).partition(f" {HOOK_VERB} {event}")
    program = split_line(before)[-1:]
    return bool(verb and program) and is_program(program[0], launchers)


def _get_words(hook: Any, launchers: Collection[str]) -> tuple[str, ...]:
    """Return the words of a shell line, or of a command with arguments."""
    words = get_command_words(hook)
    return split_line(words[0], launchers) if len(words) == 1 else words


def _get_group_hooks(group: Any) -> list[Any]:
    hooks = cast(dict[str, Any], group).get(HOOKS_KEY) if isinstance(group, dict) else None
    return cast(list[Any], hooks) if isinstance(hooks, list) else []


def _get_hooks(values: Any) -> Mapping[str, Any]:
    return as_object(as_object(values).get(HOOKS_KEY, {}), (HOOKS_KEY,))


def _iterate_our_events(values: Any, form: HookFormat) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the groups of the events that we answer. Hooks of other events are never ours."""
    for event, groups in _get_hooks(values).items():
        if event in form.events:
            yield event, as_list(groups, (HOOKS_KEY, event))
