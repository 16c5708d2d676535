"""The rules for an assistant in each mode, and the words that ask for an update of the bank.

A project's own rules go before the built-in ones, and may bring their own pattern for these words.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from everkept.core.text import clip_text
from everkept.errors import NotFound, Refused, Unavailable
from everkept.families.bank.banks import Bank
from everkept.families.bank.model import ACTIVE, CORE_FILES, DECISIONS, MODES, PATTERNS, PRODUCT, PROGRESS, Mode
from everkept.tools.tool import ToolWarning
from everkept.values import Value, replace

MAX_PATTERN_CHARACTERS = 200
MAX_COMMAND_CHARACTERS = 120  # characters that a pattern of a rule file gets to see

DEFAULT_TRIGGER = r"\b(umb|update\s+memory\s+bank)\b"
_DEFAULT_PATTERN = re.compile(DEFAULT_TRIGGER, re.IGNORECASE)
# One part of a pattern. Whatever else a pattern may hold could take for ever.
_PATTERN_PART = re.compile(
    r"""(?P<open>\((?:\?:)?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<edge>\\b|[\^$])
    | (?P<blanks>\\s[+*]?)
    | (?P<text>\\[^\w\s]|[^\\.^$*+?{}\[\]|()])
    """,
    re.VERBOSE,
)
# Blanks beside blanks can be shared out between the two, and so in many ways.
_DOUBLE_BLANKS = re.compile(r"\\s[+*]?(?:\\b|\?:|[\^$()|])*\\s")


class BadTrigger(ValueError):
    """A pattern that cannot be used; its text says why."""


def compile_trigger(pattern: str) -> re.Pattern[str]:
    """Raises BadTrigger.

    In YAML's double quotes \\b is a backspace, so one is read as the boundary that was meant.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise BadTrigger(f"the trigger is longer than {MAX_PATTERN_CHARACTERS} characters")
    pattern = pattern.replace("\b", r"\b").removeprefix("(?i)")
    if _DOUBLE_BLANKS.search(pattern):
        raise BadTrigger("the trigger has blanks beside blanks")
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
    """Whether the words are those of the trigger, or of the built-in one; raises BadTrigger."""
    line = " ".join(command.split())
    if trigger is None:
        return bool(_DEFAULT_PATTERN.search(line))
    return bool(compile_trigger(trigger).search(line[:MAX_COMMAND_CHARACTERS]))


def find_own_words(trigger: str | None) -> str | None:
    """The pattern of a project as people write it; None where the usual words count."""
    return None if trigger in (None, DEFAULT_TRIGGER) else trigger.replace("\b", r"\b")


class _PatternReader(Value, frozen=False):
    """Follows a pattern: words on all its ways, and no more than one place where it chooses."""

    has_words: bool = False  # on the way that is being read
    groups: int = 0
    in_group: bool = False
    choice: int | None = None  # the group that chooses, 0 for none

    def read(self, kind: str, part: str) -> None:
        if kind == "open":
            if self.in_group:
                raise _build_trigger_error(part)
            self.in_group, self.groups, self.has_words = True, self.groups + 1, False
        elif kind == "close":
            if not self.in_group:
                raise BadTrigger("the trigger closes a bracket that is not open")
            self._check_words()
            self.in_group = False
        elif kind == "or":
            self._choose()
        elif kind == "text":
            self.has_words = True

    def end(self) -> None:
        if self.in_group:
            raise BadTrigger("the trigger has a bracket that is not closed")
        self._check_words()

    def _choose(self) -> None:
        """Several places would multiply the ways in which a text can be read."""
        self._check_words()
        place = self.groups if self.in_group else 0
        if self.choice not in (None, place):
            raise BadTrigger("the trigger chooses in more than one place")
        self.choice, self.has_words = place, False

    def _check_words(self) -> None:
        if not self.has_words:
            raise BadTrigger("the trigger would be met without any word")


def _build_trigger_error(part: str) -> BadTrigger:
    return BadTrigger(
        f"the trigger holds `{part}`, and only words, \\b, ^, $, \\s+ and one (choice|of|words) are understood"
    )


class ModeRules(Value):
    """What an assistant does in one mode; `source` is the file they were read from."""

    mode: Mode
    general: tuple[str, ...]
    umb: tuple[str, ...]
    files_to_read: tuple[str, ...]
    files_to_update: tuple[str, ...]
    trigger: str | None = DEFAULT_TRIGGER
    source: str | None = None

    def drop_trigger(self) -> "ModeRules":
        return replace(self, trigger=None)


_FIRST_STEP = "Begin with get_context_digest, so that earlier work is known."
END_STEP = "End with complete_umb."
_UPDATE_STEPS = (
    "Look back over this conversation for what a later session has to know.",
    "Bring the files to update up to date with it; leave what others wrote as it is.",
    END_STEP,
)


def _build_built_in(mode: Mode, general: tuple[str, ...], updates: tuple[str, ...]) -> ModeRules:
    return ModeRules(mode, (_FIRST_STEP, *general), _UPDATE_STEPS, CORE_FILES, updates)


BUILT_IN_RULES: Mapping[Mode, ModeRules] = {
    "architect": _build_built_in(
        "architect",
        (
            "Design before code: weigh alternatives, and name what each one costs.",
            "Record each decision with log_decision, its alternatives and consequences included.",
            "Keep components and how they depend on each other in the knowledge graph.",
            f"Keep {PATTERNS} and {PRODUCT} in step with the design.",
        ),
        (DECISIONS, PATTERNS, PRODUCT, ACTIVE),
    ),
    "ask": _build_built_in(
        "ask",
        (
            "Answer from what is recorded: search_memory_bank first, then the files it names.",
            "Say where an answer comes from, and say so when nothing is recorded.",
            "Change no files; a session note may keep what turned out to be missing.",
        ),
        (ACTIVE,),
    ),
    "code": _build_built_in(
        "code",
        (
            "Follow the recorded patterns and decisions; ask before going against one.",
            "Record what was finished with track_progress.",
            f"Keep the tasks and next steps of {ACTIVE} as they are now.",
        ),
        (PROGRESS, ACTIVE, PATTERNS),
    ),
    "debug": _build_built_in(
        "debug",
        (
            "Look for earlier trouble of the same kind with graph_search and search_memory_bank.",
            "Write down what was seen and what was ruled out with add_session_note.",
            "Record the cause and its cure once they are known.",
        ),
        (ACTIVE, PROGRESS, DECISIONS),
    ),
    "test": _build_built_in(
        "test",
        (
            "Check what was built against what was decided.",
            "Record results with track_progress, its status included.",
            f"Put failures among the known issues of {ACTIVE}.",
        ),
        (PROGRESS, ACTIVE),
    ),
}


MAX_YAML_DEPTH = 64  # levels
_BRACKET = re.compile(r"[\[\]{}]")
_NULL = re.compile(r"(?:~|null|Null|NULL|)$")


class BadYaml(ValueError):
    """What is no such YAML; its text says why."""


def parse_yaml(text: str) -> Any:
    """Every scalar is a text or None. Raises BadYaml.

    References would make gigabytes out of a few lines, and merging them takes as long.
    """
    # The reader looks far ahead for the end of a bracket, before it tells of the beginning.
    if _compute_depth(text) > MAX_YAML_DEPTH:
        raise BadYaml(f"its brackets are nested more than {MAX_YAML_DEPTH} levels deep")
    import yaml  # only those who have rule files pay for it

    class Loader(yaml.BaseLoader):
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if cast(Any, self).peek_event().anchor is not None:  # of either kind
                raise BadYaml("it uses anchors (&) or references (*), which are not read")
            if self.depth == MAX_YAML_DEPTH:
                raise BadYaml(f"it is nested more than {MAX_YAML_DEPTH} levels deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            if isinstance(node, yaml.MappingNode) and any(map(_merges, node.value)):
                raise BadYaml("it merges mappings (<<), which is not read")
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
    """How deep brackets are nested, those in texts counted too."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


MAX_FILE_BYTES = 64 * 1024
_MAX_LINES = 200
_MAX_LINE_CHARACTERS = 5_000


class FoundRules(Value):
    """The rules of a mode, and what was wrong with files that were passed over."""

    rules: ModeRules
    warnings: list[ToolWarning]


class _UnusableRules(ValueError):
    """A rule file that is no such thing; its text says why."""


async def read_rules(bank: Bank | None, mode: Mode) -> FoundRules:
    """The project's own in either name, else the built-in ones; a broken file is passed over."""
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
    """Writes the built-in rules beside the bank, to be changed there; the names it wrote.

    A mode that has a rule file already keeps it.
    """
    written: list[str] = []
    for mode in MODES:
        name, legacy = build_file_names(mode)
        if await bank.home.read_info(name) or await bank.home.read_info(legacy):
            continue
        await bank.home.write(name, render_rules(BUILT_IN_RULES[mode]).encode("utf-8"))
        written.append(name)
    return written


def build_file_names(mode: Mode) -> tuple[str, str]:
    """As they are written, and as they were before."""
    return f".mcprules-{mode}", f".clinerules-{mode}"


def render_rules(rules: ModeRules) -> str:
    """As YAML. Texts are quoted as in JSON, the pattern as YAML takes it literally."""
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
        raise _UnusableRules(f"it has {info.size:,} bytes, and {MAX_FILE_BYTES:,} are read at most")
    try:
        data = await bank.home.read(name)
    except NotFound:
        return None
    # Reading YAML takes a while, in which others have their turn.
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
            pass  # YAML has braces too
    try:
        return parse_yaml(text)
    except BadYaml as error:
        raise _UnusableRules(f"it cannot be read as YAML or JSON ({clip_text(str(error), 200)})") from None


def _build_rules(value: Any, mode: Mode, name: str) -> ModeRules:
    whole = _require_mapping(value)
    named = whole.get("mode")
    if not isinstance(named, str):
        raise _UnusableRules(f"it names no mode; write `mode: {mode}`")
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
        raise _UnusableRules("`instructions.umb.trigger` is no text")
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
        message = f"{rules.source}: {error}; the built-in one is used."
        return rules.drop_trigger(), [*warnings, ToolWarning("trigger_ignored", message)]
    return rules, warnings


def _require_mapping(value: Any) -> dict[str, Any]:
    if value is None:
        raise _UnusableRules("it is empty")
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "one value"
        raise _UnusableRules(f"it is {kind}, where `mode` and `instructions` are looked for")
    return cast(dict[str, Any], value)


def _require_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _UnusableRules(f"{what} is missing or no mapping")
    return cast(dict[str, Any], value)


def _parse_lines(value: Any, what: str) -> tuple[str, ...]:
    """One text or many. What YAML takes for a pair, because of its colon, is text too."""
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
    """What YAML takes for nothing, as a word that ends in a colon has behind it, is no text."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise _UnusableRules(f"{what} is no list of texts")
    return str(value)


def _format_yaml_list(lines: tuple[str, ...], indentation: int) -> list[str]:
    return [f"{' ' * indentation}- {json.dumps(line, ensure_ascii=False)}" for line in lines]
