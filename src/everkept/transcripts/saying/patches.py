"""Patches as Codex writes them: which files they change, and what they put there."""

from everkept.core.transcripts import Snippet
from everkept.values import Value, field

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_FILE = ("*** Add File: ", "*** Update File: ", "*** Delete File: ")
_MOVED = "*** Move to: "


class Patch(Value, frozen=False):
    """What a patch says; empty where a text holds none."""

    files: list[str] = field(default_factory=list[str])
    snippets: list[Snippet] = field(default_factory=list[Snippet])


def patch_in(text: str) -> Patch:
    """The first patch in a text, which may be a command that applies it."""
    patch = Patch()
    start = text.find(_BEGIN)
    if start < 0:
        return patch
    end = text.find(_END, start)
    hunk = _Hunk()
    for line in text[start : end if end >= 0 else None].split("\n")[1:]:
        if line.startswith(_FILE):
            hunk = _finished(patch, hunk, line.partition(": ")[2].strip())
            patch.files.append(hunk.file)
        elif line.startswith(_MOVED):
            hunk.file = line.removeprefix(_MOVED).strip()
            patch.files.append(hunk.file)
        elif line.startswith("@@"):
            hunk = _finished(patch, hunk, hunk.file)
        else:
            hunk.take(line)
    _finished(patch, hunk, "")
    return patch


class _Hunk(Value, frozen=False):
    file: str = ""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])
    adds: bool = False

    def take(self, line: str) -> None:
        sign, rest = line[:1], line[1:]
        if sign == "+":
            self.new.append(rest)
            self.adds = True
        elif sign == "-":
            self.old.append(rest)
        elif sign in (" ", ""):
            self.new.append(rest)
            self.old.append(rest)


def _finished(patch: Patch, hunk: _Hunk, next_file: str) -> _Hunk:
    if hunk.adds:
        replaced = "\n".join(hunk.old).strip("\n") or None
        patch.snippets.append(Snippet("\n".join(hunk.new).strip("\n"), hunk.file, None, replaced))
    return _Hunk(next_file)
