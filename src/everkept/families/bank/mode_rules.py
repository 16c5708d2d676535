"""Rules for an assistant in each mode, and the command that asks for a bank update.

A project's own rule files take precedence over the built-in rules and may define another command.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.text import clip_text, format_count
from everkept.errors import NotFound, Refused, Unavailable
from everkept.families.bank.banks import Bank
from everkept.families.bank.model import ACTIVE, CORE_FILES, DECISIONS, MODES, PATTERNS, PRODUCT, PROGRESS, Mode
from everkept.tools.tool import ToolWarning
from everkept.values import Value, replace

MAX_PATTERN_CHARACTERS = 200
MAX_COMMAND_CHARACTERS = 120  # part of a command that a rule file's pattern is matched with

DEFAULT_TRIGGER = r"\b(umb|update\s+memory\s+bank)\b"
_DEFAULT_PATTERN = re.compile(DEFAULT_TRIGGER, re.IGNORECASE)
_ARTICLE = re.compile(r"\b(?:the|this|my|our|your)\s+(?=memory)", re.IGNORECASE)
# Allowed parts of a pattern. Any other part could make matching very slow.
_PATTERN_PART = re.compile(
    r"""(?P<open>\((?:\?:)?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<edge>\\b|[\^$])
    | (?P<space>\\s[+*]?)
    | (?P<text>\\[^\w\s]|[^\\.^$*+?{}\[\]|()])
    """,
    re.VERBOSE,
)
# Adjacent whitespace patterns can split a text in many ways, which is slow.
_DOUBLE_BLANKS = re.compile(r"\\s[+*]?(?:\\b|\?:|[\^$()|])*\\s")


class BadTrigger(ValueError):
    """A pattern that cannot be used; the message says why."""


def compile_trigger(pattern: str) -> re.Pattern[str]:
    r"""Compile the pattern, or raise BadTrigger. A backspace, which is \b in YAML double quotes, is read as \b."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise BadTrigger(f"the trigger is longer than {MAX_PATTERN_CHARACTERS} characters")
    pattern = pattern.replace("\b", r"\b").removeprefix("(?i)")
    if _DOUBLE_BLANKS.search(pattern):
        raise BadTrigger("the trigger has adjacent whitespace patterns")
    reader = _PatternReader()
    at = 0
    while at < len(pattern):
        found = _PATTERN_PART.match(pattern, at)
        if found is None:
            raise _build_trigger_error(pattern[at : at + 2])
        reader.read(str(found.lastgroup), found.group())
        at = found.end()
    reader.end()
    return re.compile(pattern, re.IGNORECASE)


def is_update_command(command: str, trigger: str | None) -> bool:
    """Return whether the command matches the trigger, or the built-in one if it is None. Raise BadTrigger.

    "Update the memory bank" is the same as "update memory bank".
    """
    line = " ".join(command.split())
    pattern = _DEFAULT_PATTERN if trigger is None else compile_trigger(trigger)
    most = None if trigger is None else MAX_COMMAND_CHARACTERS
    return any(pattern.search(each[:most]) for each in (line, _ARTICLE.sub("", line)))


def find_own_words(trigger: str | None) -> str | None:
    """Return the project's own pattern, or None if it has the default one."""
    return None if trigger in (None, DEFAULT_TRIGGER) else trigger.replace("\b", r"\b")


class _PatternReader(Value, frozen=False):
    """Checks a pattern: it needs words in every alternative, and may have alternatives in only one place."""

    has_words: bool = False  # in the current alternative
    groups: int = 0
    in_group: bool = False
    choice: int | None = None  # group with alternatives, 0 for the top level

    def read(self, kind: str, part: str) -> None:
        if kind == "open":
            if self.in_group:
                raise _build_trigger_error(part)
            self.in_group, self.groups, self.has_words = True, self.groups + 1, False
        elif kind == "close":
            if not self.in_group:
                raise BadTrigger("the trigger has a closing parenthesis without an opening one")
            self._check_words()
            self.in_group = False
        elif kind == "or":
            self._choose()
        elif kind == "text":
            self.has_words = True

    def end(self) -> None:
        if self.in_group:
            raise BadTrigger("the trigger has a parenthesis that is not closed")
        self._check_words()

    def _choose(self) -> None:
        """Start another alternative. Several places with alternatives would multiply the ways to match."""
        self._check_words()
        place = self.groups if self.in_group else 0
        if self.choice not in (None, place):
            raise BadTrigger("the trigger has alternatives in more than one place")
        self.choice, self.has_words = place, False

    def _check_words(self) -> None:
        if not self.has_words:
            raise BadTrigger("the trigger would match without any word")


def _build_trigger_error(part: str) -> BadTrigger:
    return BadTrigger(
        f"the trigger contains `{part}`; only words, \\b, ^, $, \\s+ and one (choice|of|words) are allowed"
    )


class ModeRules(Value):
    """Instructions for one mode. `source` is the name of the rule file, if any."""

    mode: Mode
    general: tuple[str, ...]
    umb: tuple[str, ...]
    files_to_read: tuple[str, ...]
    files_to_update: tuple[str, ...]
    trigger: str | None = DEFAULT_TRIGGER
    source: str | None = None


_FIRST_STEP = "Begin with get_context_digest to learn about earlier work."
END_STEP = "End with complete_umb."
_UPDATE_STEPS = (
    "Review this conversation for facts that a later session needs.",
    "Add them to the files to update. Do not change text that others wrote.",
    END_STEP,
)


def _build_built_in(mode: Mode, general: tuple[str, ...], updates: tuple[str, ...]) -> ModeRules:
    return ModeRules(mode, (_FIRST_STEP, *general), _UPDATE_STEPS, CORE_FILES, updates)


BUILT_IN_RULES: Mapping[Mode, ModeRules] = {
    "architect": _build_built_in(
        "architect",
        (
            "Design before you code. Compare alternatives and name the cost of each.",
            "Record each decision with log_decision, including alternatives and consequences.",
            "Record components and their dependencies in the knowledge graph.",
            f"Keep {PATTERNS} and {PRODUCT} consistent with the design.",
        ),
        (DECISIONS, PATTERNS, PRODUCT, ACTIVE),
    ),
    "ask": _build_built_in(
        "ask",
        (
            "Answer from the records: call search_memory_bank first, then read the files it names.",
            "Name the source of each answer, and say if nothing is recorded.",
            "Do not change files, except to record missing information in a session note.",
        ),
        (ACTIVE,),
    ),
    "code": _build_built_in(
        "code",
        (
            "Follow the recorded patterns and decisions. Ask before you deviate from one.",
            "Record completed work with track_progress.",
            f"Keep the tasks and next steps of {ACTIVE} current.",
        ),
        (PROGRESS, ACTIVE, PATTERNS),
    ),
    "debug": _build_built_in(
        "debug",
        (
            "Search for similar earlier problems with graph_search and search_memory_bank.",
            "Record observations and excluded causes with add_session_note.",
            "Record the cause and the fix when you know them.",
        ),
        (ACTIVE, PROGRESS, DECISIONS),
    ),
    "test": _build_built_in(
        "test",
        (
            "Check the implementation against the decisions.",
            "Record results with track_progress, including the status.",
            f"Add failures to the known issues of {ACTIVE}.",
        ),
        (PROGRESS, ACTIVE),
    ),
}


MAX_YAML_DEPTH = 64
_BRACKET = re.compile(r"[\[\]{}]")
_NULL = re.compile(r"(?:~|null|Null|NULL|)$")


class BadYaml(ValueError):
    """Text that is not supported YAML; the message says why."""


def parse_yaml(text: str) -> Any:
    """Parse YAML with only strings and None. Raise BadYaml, also for references, which can expand to gigabytes."""
    # The parser looks far ahead for a closing bracket before it reports the opening one.
    if _compute_depth(text) > MAX_YAML_DEPTH:
        raise BadYaml(f"its brackets are nested more than {MAX_YAML_DEPTH} levels deep")
    import yaml  # imported here: most projects have no rule files

    class Loader(yaml.BaseLoader):
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if cast(Any, self).peek_event().anchor is not None:  # an anchor or a reference
                raise BadYaml("it uses anchors (&) or references (*), which are not supported")
            if self.depth == MAX_YAML_DEPTH:
                raise BadYaml(f"it is nested more than {MAX_YAML_DEPTH} levels deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            if isinstance(node, yaml.MappingNode) and any(map(_merges, node.value)):
                raise BadYaml("it merges mappings (<<), which is not supported")
            return node

    def _merges(pair: tuple[Any, Any]) -> bool:
        return isinstance(pair[0], yaml.ScalarNode) and pair[0].value == "<<"

    cast(Any, Loader).add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
    Loader.add_constructor("tag:yaml.org,2002:null", lambda loader, node: None)
    try:
        return yaml.load(text, Loader)
    except BadYaml:
        raise
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise BadYaml(" ".join(str(error).split())) from None


def _compute_depth(text: str) -> int:
    """Return how deep brackets are nested, including those inside strings."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


MAX_FILE_BYTES = 64 * 1024
_MAX_LINES = 200
_MAX_LINE_CHARACTERS = 5_000


class FoundRules(Value):
    rules: ModeRules
    warnings: list[ToolWarning]


class _UnusableRules(ValueError):
    """A rule file that cannot be used; the message says why."""


async def read_rules(bank: Bank | None, mode: Mode) -> FoundRules:
    """Return the project's rules, otherwise the built-in ones. A broken file is ignored with a warning."""
    warnings: list[ToolWarning] = []
    for name in build_file_names(mode) if bank else ():
        try:
            rules = await _read_file(cast(Bank, bank), name, mode)
        except _UnusableRules as error:
            warnings.append(ToolWarning("rules_ignored", f"{name} is ignored: {error}."))
            continue
        except (Refused, Unavailable) as error:
            warnings.append(ToolWarning("rules_ignored", f"{name} is ignored: {error}"))
            continue
        if rules is not None:
            return FoundRules(*_with_usable_trigger(rules, warnings))
    return FoundRules(BUILT_IN_RULES[mode], warnings)


async def write_rules(bank: Bank) -> list[str]:
    """Write editable built-in rules next to the bank for modes without a rule file. Return the new file names."""
    written: list[str] = []
    for mode in MODES:
        name, legacy = build_file_names(mode)
        if await bank.home.read_info(name) or await bank.home.read_info(legacy):
            continue
        await bank.home.write(name, render_rules(BUILT_IN_RULES[mode]).encode("utf-8"))
        written.append(name)
    return written


def build_file_names(mode: Mode) -> tuple[str, str]:
    """Return the current and the older name of the rule file."""
    return f".mcprules-{mode}", f".clinerules-{mode}"


def render_rules(rules: ModeRules) -> str:
    """Render the rules as YAML, with texts quoted as in JSON and the pattern in single quotes."""
    trigger = (rules.trigger or "").replace("'", "''")
    return "\n".join(
        [
            f"mode: {rules.mode}",
            "instructions:",
            "  general:",
            *_format_yaml_list(rules.general, 4),
            "  umb:",
            f"    trigger: '{trigger}'",
            "    instructions:",
            *_format_yaml_list(rules.umb, 6),
            "    override_file_restrictions: true",
            "  memory_bank:",
            "    files_to_read:",
            *_format_yaml_list(rules.files_to_read, 6),
            "    files_to_update:",
            *_format_yaml_list(rules.files_to_update, 6),
            "",
        ]
    )


async def _read_file(bank: Bank, name: str, mode: Mode) -> ModeRules | None:
    info = await bank.home.read_info(name)
    if info is None or info.is_folder:
        return None
    if info.size > MAX_FILE_BYTES:
        raise _UnusableRules(f"it has {format_count(info.size, 'byte')}, and the limit is {MAX_FILE_BYTES:,}")
    try:
        data = await bank.home.read(name)
    except NotFound:
        return None
    # In a thread, because parsing YAML is slow.
    return _build_rules(await asyncio.to_thread(_parse_data, data), mode, name)


def _parse_data(data: bytes) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _UnusableRules("it is not UTF-8") from None
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # YAML may begin with a brace too
    try:
        return parse_yaml(text)
    except BadYaml as error:
        raise _UnusableRules(f"it cannot be read as YAML or JSON ({clip_text(str(error), 200)})") from None


def _build_rules(value: Any, mode: Mode, name: str) -> ModeRules:
    if value is None:
        raise _UnusableRules("it is empty")
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "one value"
        raise _UnusableRules(f"it is {kind} instead of a mapping with `mode` and `instructions`")
    whole = cast(dict[str, Any], value)
    named = whole.get("mode")
    if not isinstance(named, str):
        raise _UnusableRules(f"it has no mode; add `mode: {mode}`")
    if named != mode:
        raise _UnusableRules(f'its mode is "{clip_text(named)}", not "{mode}"')
    instructions = _require_object(whole.get("instructions"), "`instructions`")
    general = _parse_lines(instructions.get("general"), "`instructions.general`")
    if not general:
        raise _UnusableRules("`instructions.general` is missing or empty")
    umb = _require_object(instructions.get("umb") or {}, "`instructions.umb`")
    files = _require_object(instructions.get("memory_bank") or {}, "`instructions.memory_bank`")
    trigger = umb.get("trigger")
    if trigger is not None and not isinstance(trigger, str):
        raise _UnusableRules("`instructions.umb.trigger` is not a string")
    return ModeRules(
        mode,
        general,
        _parse_lines(umb.get("instructions"), "`instructions.umb.instructions`") or BUILT_IN_RULES[mode].umb,
        _parse_lines(files.get("files_to_read"), "`files_to_read`") or BUILT_IN_RULES[mode].files_to_read,
        _parse_lines(files.get("files_to_update"), "`files_to_update`") or BUILT_IN_RULES[mode].files_to_update,
        trigger or None,
        name,
    )


def _with_usable_trigger(rules: ModeRules, warnings: list[ToolWarning]) -> tuple[ModeRules, list[ToolWarning]]:
    if rules.trigger is None:
        return rules, warnings
    try:
        compile_trigger(rules.trigger)
    except BadTrigger as error:
        message = f"{rules.source}: {error}. The built-in trigger is used."
        return replace(rules, trigger=None), [*warnings, ToolWarning("trigger_ignored", message)]
    return rules, warnings


def _require_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _UnusableRules(f"{what} is missing or not a mapping")
    return cast(dict[str, Any], value)


def _parse_lines(value: Any, what: str) -> tuple[str, ...]:
    """Return one or several texts. A text with a colon, which YAML reads as a pair, is a text too."""
    if value is None:
        return ()
    items: list[Any] = cast(list[Any], value) if isinstance(value, list) else [value]
    if len(items) > _MAX_LINES:
        raise _UnusableRules(f"{what} has more than {_MAX_LINES} entries")
    lines = [_parse_line(item, what) for item in items if item is not None]
    return tuple(line for line in lines if line)


def _parse_line(item: Any, what: str) -> str:
    if isinstance(item, dict):
        pairs = cast(dict[Any, Any], item).items()
        line = ", ".join(f"{_require_text(key, what)}: {_require_text(part, what)}" for key, part in pairs)
    else:
        line = _require_text(item, what)
    if len(line := line.strip()) > _MAX_LINE_CHARACTERS:
        raise _UnusableRules(f"{what} has an entry of more than {_MAX_LINE_CHARACTERS:,} characters")
    return line


def _require_text(value: Any, what: str) -> str:
    """Return a text. YAML reads nothing after a colon as None, which becomes an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise _UnusableRules(f"{what} is not a list of strings")
    return str(value)


def _format_yaml_list(lines: tuple[str, ...], indentation: int) -> list[str]:
    return [f"{' ' * indentation}- {json.dumps(line, ensure_ascii=False)}" for line in lines]
