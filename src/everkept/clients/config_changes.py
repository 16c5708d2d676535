"""Changes of a client's configuration: plan, show, apply, undo."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Any

from everkept.clients.config_files import (
    EMPTY_CONTENT,
    ConfigFileContent,
    UnexpectedShape,
    back_up,
    is_same,
    list_backups,
    read_config_file,
    remove_config_file,
    replace_config_file,
)
from everkept.clients.entries import ConfigPart, NameTaken
from everkept.clients.jsonc import NotJson
from everkept.clients.toml_text import NotToml
from everkept.core.secrets import mask_text
from everkept.errors import Conflict, EverkeptError, Refused
from everkept.values import Value

_EMPTY_TEXTS = ("", "{}")
_CONTEXT_LINES = 3  # shown before and after a change
_MAX_LINE_CHARACTERS = 500
_CONTEXT_CHARACTERS = 40  # shown before and after a change in a long line


class ConfigChange(Value):
    """Planned change of a file. `before` is None for a new file.

    `is_removal`: the file is removed, because setup created it and nothing is left in it.
    """

    part: ConfigPart
    before: ConfigFileContent | None
    text: str
    is_removal: bool = False

    @property
    def is_needed(self) -> bool:
        return self.text != (self.before or EMPTY_CONTENT).text

    @property
    def diff(self) -> str:
        """Return the change as a diff, with masked passwords."""
        old, new = (self.before or EMPTY_CONTENT).text, self.text
        lines = list(_diff_lines(old.splitlines(), new.splitlines()))
        if any(len(line) > _MAX_LINE_CHARACTERS and line[0] in "+-" for line in lines):
            lines = _diff_long_lines(old, new)
        return "\n".join(mask_text(line)[0][:_MAX_LINE_CHARACTERS] for line in lines)


class AppliedChange(Value):
    file: Path
    backup: Path | None  # None for a new file
    is_removal: bool = False


def plan_setup(part: ConfigPart) -> ConfigChange:
    """Return the file with our entries. Raise Refused if it cannot contain them."""
    held = read_config_file(part.file)
    before = held or EMPTY_CONTENT
    try:
        values = part.editor.parse_text(before.text)
        text = part.insert(before.text)
        _require_sound(part, values, text, is_in=True)
    except (NotJson, NotToml, UnexpectedShape, NameTaken) as error:
        raise _build_refusal(part, error) from error
    return ConfigChange(part, held, text)


def plan_removal(part: ConfigPart, copies: Path | None = None) -> ConfigChange:
    """Return the file without our entries; `copies` is as in `apply_changes`."""
    held = read_config_file(part.file)
    before = held or EMPTY_CONTENT
    try:
        values = part.editor.parse_text(before.text)
        if not part.is_present(values):
            return ConfigChange(part, held, before.text)
        left = part.remove(before.text)
        originals = list(_read_originals(part, copies))
        as_it_was = _find_original(part, left, originals)
        is_removal = not originals and left.strip() in _EMPTY_TEXTS
        text = "" if is_removal else left if as_it_was is None else as_it_was
        _require_sound(part, values, text, is_in=False)
    except (NotJson, NotToml, UnexpectedShape) as error:
        raise _build_refusal(part, error) from error
    return ConfigChange(part, held, text, is_removal)


def apply_changes(
    parts: Sequence[ConfigPart], moment: str, *, undo: bool, copies: Path | None = None
) -> list[AppliedChange]:
    """Apply the changes, all or none, if the files are unchanged.

    `copies` is the folder for copies of files that a project shares. Copies of a user's own files are next to them.
    """
    finished: list[tuple[ConfigChange, AppliedChange]] = []
    try:
        for part in parts:
            change = plan_removal(part, copies) if undo else plan_setup(part)
            if change.is_needed:
                finished.append((change, _apply_change(change, moment, copies)))
    except EverkeptError:
        for change, done in reversed(finished):
            _revert_change(change, done)
        raise
    return [done for _, done in finished]


def _apply_change(change: ConfigChange, moment: str, copies: Path | None) -> AppliedChange:
    file, held = change.part.file, change.before
    backup = None if held is None else back_up(file, held.raw, moment, copies)
    try:
        if read_config_file(file) != held:
            raise Conflict(f"{file} changed in the meantime.", hint="Try again.")
        if change.is_removal:
            remove_config_file(file)
        else:
            content = (held or EMPTY_CONTENT).encode_text(change.text)
            replace_config_file(file, content, is_shared=copies is not None)
    except EverkeptError:
        if backup is not None:
            remove_config_file(backup)
        raise
    return AppliedChange(file, backup, change.is_removal)


def _revert_change(change: ConfigChange, done: AppliedChange) -> None:
    if change.before is None:
        remove_config_file(done.file)
    else:
        replace_config_file(done.file, change.before.raw)
    if done.backup is not None:
        remove_config_file(done.backup)


def _read_originals(part: ConfigPart, copies: Path | None) -> Iterator[ConfigFileContent]:
    """Yield the copies without our entries, newest first. Skip copies that cannot be read."""
    for copy in list_backups(part.file, copies):
        with suppress(EverkeptError, NotJson, NotToml, UnexpectedShape):
            held = read_config_file(copy)
            if held is not None and not part.is_present(part.editor.parse_text(held.text)):
                yield held


def _find_original(part: ConfigPart, left: str, originals: Sequence[ConfigFileContent]) -> str | None:
    """Return the newest copy without our entries, if it equals what remains now, down to the comments.

    The copy shows whether an empty part was there before.
    """
    for held in originals:
        try:
            come_to = part.remove(part.insert(held.text))
            values = [part.editor.parse_text(text) for text in (come_to, left)]
        except (EverkeptError, NotJson, NotToml, UnexpectedShape, NameTaken):
            continue
        return held.text if _remove_whitespace(come_to) == _remove_whitespace(left) and is_same(*values) else None
    return None


def _remove_whitespace(text: str) -> str:
    return "".join(text.split())


def _require_sound(part: ConfigPart, values: Any, text: str, *, is_in: bool) -> None:
    """Check that the text contains the same values as before, except for our entries."""
    try:
        changed = part.editor.parse_text(text)
        is_sound = part.is_present(changed) == is_in
        is_sound = is_sound and is_same(part.exclude_ours(values), part.exclude_ours(changed))
    except (NotJson, NotToml):
        is_sound = False
    if not is_sound:
        raise UnexpectedShape("its form does not allow another entry")


def _build_refusal(part: ConfigPart, error: Exception) -> Refused:
    if isinstance(error, NotJson | NotToml):
        return Refused(
            f"{part.file} cannot be read ({error}). Nothing was changed.",
            hint="Fix it, or print the entry to paste with --print.",
            file=str(part.file),
        )
    hint = "Print the entry to paste with --print."
    if isinstance(error, NameTaken):
        hint = f"--force replaces it; {hint}"
    return Refused(f"{part.file} cannot be changed: {error}. Nothing was changed.", hint=hint, file=str(part.file))


def _diff_lines(old: list[str], new: list[str]) -> Iterator[str]:
    """Compare only from the first to the last change, because files may be large."""
    same = _count_common_prefix(old, new)
    rest = min(len(old), len(new)) - same
    same_after = min(_count_common_prefix(old[::-1], new[::-1]), rest)
    start = max(same - _CONTEXT_LINES, 0)
    ends = [max(len(lines) - same_after + _CONTEXT_LINES, 0) for lines in (old, new)]
    lines = unified_diff(old[start : ends[0]], new[start : ends[1]], lineterm="", n=_CONTEXT_LINES)
    for line in lines:
        if line.startswith("@@"):
            first = int(line.split()[2].lstrip("+").split(",")[0])
            yield f"@@ line {start + max(first, 1)} @@"
        elif not line.startswith(("---", "+++")):
            yield line


def _diff_long_lines(old: str, new: str) -> list[str]:
    """Show only the place of the change for a file with one long line."""
    same = _count_common_prefix(old, new)
    same_after = min(_count_common_prefix(old[::-1], new[::-1]), min(len(old), len(new)) - same)
    begin = max(same - _CONTEXT_CHARACTERS, 0)
    return [
        f"{sign}{line}"
        for sign, text in (("-", old), ("+", new))
        for line in f"…{text[begin : len(text) - same_after]}…".splitlines()
    ]


def _count_common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
