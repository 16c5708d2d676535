"""Planning a change of a client's configuration, showing it, making it, and taking it back."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Any

from everkept.clients.config_files import (
    NOTHING,
    Held,
    Unfitting,
    back_up,
    backups,
    is_same,
    read,
    remove,
    replace,
)
from everkept.clients.entries import NotOurs, Part
from everkept.clients.jsonc import NotJson
from everkept.clients.toml_text import NotToml
from everkept.core.secrets import masked
from everkept.errors import Conflict, EverkeptError, Refused
from everkept.values import Value

_AROUND = 3  # lines that are shown before and after a change
_LONGEST_LINE = 500
_BESIDE = 40  # characters that are shown before and after a change within a longer line


class Change(Value):
    """What is to become of a file; `before` is None where it is not there yet."""

    part: Part
    before: Held | None
    text: str

    @property
    def is_needed(self) -> bool:
        return self.text != (self.before or NOTHING).text

    @property
    def diff(self) -> str:
        """As a person reads it; what looks like a password in it is masked."""
        old, new = (self.before or NOTHING).text, self.text
        lines = list(_difference(old.splitlines(), new.splitlines()))
        if any(len(line) > _LONGEST_LINE and line[0] in "+-" for line in lines):
            lines = _difference_of_long_lines(old, new)
        return "\n".join(masked(line)[0][:_LONGEST_LINE] for line in lines)


class Done(Value):
    file: Path
    backup: Path | None  # None for a file that is new


def planned(part: Part) -> Change:
    """How the file looks with what is ours. Refused where it cannot take it."""
    held = read(part.file)
    before = held or NOTHING
    try:
        values = part.editor.parsed(before.text)
        text = part.put(before.text)
        _require_sound(part, values, text, is_in=True)
    except (NotJson, NotToml, Unfitting, NotOurs) as error:
        raise _refusal(part, error) from error
    return Change(part, held, text)


def undone(part: Part, copies: Path | None = None) -> Change:
    """How the file looks without what is ours; `copies` as in `made`."""
    held = read(part.file)
    before = held or NOTHING
    try:
        values = part.editor.parsed(before.text)
        if not part.is_in(values):
            return Change(part, held, before.text)
        left = part.taken(before.text)
        as_it_was = _as_it_was(part, left, copies)
        text = left if as_it_was is None else as_it_was
        _require_sound(part, values, text, is_in=False)
    except (NotJson, NotToml, Unfitting) as error:
        raise _refusal(part, error) from error
    return Change(part, held, text)


def made(
    parts: Sequence[Part], moment: str, *, undo: bool, copies: Path | None = None
) -> list[Done]:
    """Makes the changes, all or none, of what the files hold at this moment.

    `copies` is the folder for copies of files that a project shares; a user's own lie beside them.
    """
    finished: list[tuple[Change, Done]] = []
    try:
        for part in parts:
            change = undone(part, copies) if undo else planned(part)
            if change.is_needed:
                finished.append((change, _made(change, moment, copies)))
    except EverkeptError:
        for change, done in reversed(finished):
            _take_back(change, done)
        raise
    return [done for _, done in finished]


def _made(change: Change, moment: str, copies: Path | None) -> Done:
    file, held = change.part.file, change.before
    backup = None if held is None else back_up(file, held.raw, moment, copies)
    try:
        if read(file) != held:
            raise Conflict(f"{file} was changed at this moment.", hint="Try again.")
        content = (held or NOTHING).with_text(change.text)
        replace(file, content, is_shared=copies is not None)
    except EverkeptError:
        if backup is not None:
            remove(backup)
        raise
    return Done(file, backup)


def _take_back(change: Change, done: Done) -> None:
    if change.before is None:
        remove(done.file)
    else:
        replace(done.file, change.before.raw)
    if done.backup is not None:
        remove(done.backup)


def _as_it_was(part: Part, left: str, copies: Path | None) -> str | None:
    """The newest copy without ours, if it comes to what is left now, down to the comments.

    What is empty tells nobody whether it was so before; a copy does.
    """
    for copy in backups(part.file, copies):
        try:
            held = read(copy)
            if held is None or part.is_in(part.editor.parsed(held.text)):
                continue
            come_to = part.taken(part.put(held.text))
            values = [part.editor.parsed(text) for text in (come_to, left)]
        except (EverkeptError, NotJson, NotToml, Unfitting, NotOurs):
            continue
        return held.text if _squeezed(come_to) == _squeezed(left) and is_same(*values) else None
    return None


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _require_sound(part: Part, values: Any, text: str, *, is_in: bool) -> None:
    """The text must say what the values did, except for what is ours."""
    try:
        changed = part.editor.parsed(text)
        is_sound = part.is_in(changed) == is_in
        is_sound = is_sound and is_same(part.others(values), part.others(changed))
    except (NotJson, NotToml):
        is_sound = False
    if not is_sound:
        raise Unfitting("it is written in a way that leaves no room for an entry")


def _refusal(part: Part, error: Exception) -> Refused:
    if isinstance(error, NotJson | NotToml):
        return Refused(
            f"{part.file} cannot be read ({error}). Nothing was changed.",
            hint="Mend it, or see what to paste with --print.",
            file=str(part.file),
        )
    hint = "--print shows what to paste by hand."
    if isinstance(error, NotOurs):
        hint = f"--force replaces it; {hint}"
    return Refused(
        f"{part.file} cannot be changed: {error}. Nothing was changed.",
        hint=hint,
        file=str(part.file),
    )


def _difference(old: list[str], new: list[str]) -> Iterator[str]:
    """Only what lies between the first and the last change is compared: files may be large."""
    same = _same_at_start(old, new)
    rest = min(len(old), len(new)) - same
    same_after = min(_same_at_start(old[::-1], new[::-1]), rest)
    start = max(same - _AROUND, 0)
    ends = [max(len(lines) - same_after + _AROUND, 0) for lines in (old, new)]
    lines = unified_diff(old[start : ends[0]], new[start : ends[1]], lineterm="", n=_AROUND)
    for line in lines:
        if line.startswith("@@"):
            first = int(line.split()[2].lstrip("+").split(",")[0])
            yield f"@@ line {start + max(first, 1)} @@"
        elif not line.startswith(("---", "+++")):
            yield line


def _difference_of_long_lines(old: str, new: str) -> list[str]:
    """Of a file that is one line only the place of the change, or nobody could read it."""
    same = _same_at_start(old, new)
    same_after = min(_same_at_start(old[::-1], new[::-1]), min(len(old), len(new)) - same)
    begin = max(same - _BESIDE, 0)
    return [
        f"{sign}{line}"
        for sign, text in (("-", old), ("+", new))
        for line in f"…{text[begin : len(text) - same_after]}…".splitlines()
    ]


def _same_at_start(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
