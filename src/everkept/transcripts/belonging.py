"""Which program a transcript is of by where it lies, and which others are parts of it."""

import os
from collections.abc import Iterator
from pathlib import Path

from everkept.transcripts.places import ClientFolders
from everkept.transcripts.sources import CLAUDE_CODE, CODEX, CURSOR, GEMINI

MOST_AGENTS = 1_000  # files beside a transcript that are looked into, the newest

_BEGINNING = 256 * 1024  # bytes that a first line is looked for in
_ENDINGS = (".jsonl", ".json")


def source_at(path: Path, folders: ClientFolders) -> str | None:
    """The program in whose folder a file of this name really lies; None elsewhere."""
    places = {
        CLAUDE_CODE: folders.claude,
        CODEX: folders.codex,
        GEMINI: folders.gemini,
        CURSOR: folders.cursor,
    }
    try:
        real = path.resolve()
        found = (name for name, place in places.items() if real.is_relative_to(place.resolve()))
        return next(found, None)
    except (OSError, RuntimeError, ValueError):  # a circle of links, or what is no path
        return None


def agents_of(path: Path, source: str, session: str) -> list[Path]:
    """The transcripts of the agents that the session sent."""
    if not session:
        return []
    if source == CLAUDE_CODE:
        return [*_listed(path.with_suffix("") / "subagents"), *_beside(path, session)]
    if source == GEMINI and Path(session).name == session != "..":
        return _listed(path.parent / session)
    return []


def _beside(path: Path, session: str) -> Iterator[Path]:
    """Older versions keep all agents of a folder in one place; each record names its session."""
    found = [each for each in _listed(path.parent) if each.name.startswith("agent-")]
    return (each for each in found[-MOST_AGENTS:] if _session_of(each) == session)


def _session_of(path: Path) -> str:
    # Imported here: a hook asks only where a transcript lies.
    from everkept.transcripts.reading.fields import decoded, string

    try:
        with path.open("rb") as file:
            return string(decoded(file.readline(_BEGINNING)).get("sessionId"))
    except OSError:
        return ""


def _listed(folder: Path) -> list[Path]:
    """The oldest first: what is in two of them stays with the one that had it first."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(_ENDINGS) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # there is none, or it went away meanwhile
        return []
    return [folder / name for _, name in sorted(found)]
