"""Which transcripts are on this machine."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everkept.core.transcripts import Transcript
from everkept.errors import InvalidInput, NotFound
from everkept.transcripts.claude_code import ClaudeCodeFormat
from everkept.transcripts.codex import CodexFormat
from everkept.transcripts.cursor_agents import CursorFormat, text_events
from everkept.transcripts.cursor_editor import DATABASE, Composer, composers
from everkept.transcripts.documents import LineTranscript, PlainFormat, WholeTranscript
from everkept.transcripts.gemini import GeminiFormat, GeminiProjects, object_events
from everkept.transcripts.source_programs import (
    CLAUDE_CODE,
    CODEX,
    CURSOR,
    GEMINI,
    PLAIN,
    SOURCES,
    ClientFolders,
    guessed,
)

_DEEPEST = 12  # folders in folders
_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT


class _File(NamedTuple):
    path: Path
    seen: os.stat_result


class _Dated(NamedTuple):
    modified: int
    is_second: bool  # to what is as old
    name: str
    transcript: Transcript


class MachineTranscripts:
    """Implements Transcripts. `known` are folders that somebody may have worked in.

    It remembers what it found in a database: one that is kept finds the rest the sooner.
    """

    def __init__(self, folders: ClientFolders, known: Iterable[str] = ()) -> None:
        self._folders = folders
        self.known = tuple(known)
        self._composers: tuple[object, list[Transcript]] = (None, [])

    @property
    def sources(self) -> Sequence[str]:
        return SOURCES

    def found(self, sources: Sequence[str] = (), files: Sequence[Path] = ()) -> list[Transcript]:
        for source in sources:
            if source not in SOURCES:
                raise _unknown(source)
        projects = GeminiProjects(self._folders.gemini, self.known)
        if files:
            named = (self._named(file, sources, projects) for file in files)
            return [transcript for transcripts in named for transcript in transcripts]
        if PLAIN in sources:
            raise _without_files()
        dated = [each for source in sources or SOURCES for each in self._of(source, projects)]
        return [each.transcript for each in sorted(dated, key=lambda each: each[:3])]

    def _of(self, source: str, projects: GeminiProjects) -> Iterator["_Dated"]:
        elsewhere = self._editor() if source == CURSOR else []
        # The editor's database says more of a conversation than its file: it comes first.
        held = {each.session: each.modified for each in elsewhere if isinstance(each, Composer)}
        for file in self._files(source):
            transcript = _transcript(source, file.path, projects, file.seen)
            in_database = held.get(file.path.stem) if held else None
            latest = max(transcript.modified, in_database or 0)
            yield _Dated(latest, in_database is not None, transcript.name, transcript)
        for transcript in elsewhere:
            yield _Dated(transcript.modified, False, transcript.name, transcript)

    def _files(self, source: str) -> Iterator[_File]:
        looks = {
            CLAUDE_CODE: self._claude_files,
            CODEX: self._codex_files,
            GEMINI: self._gemini_files,
            CURSOR: self._cursor_files,
        }
        look = looks.get(source)
        return look() if look else iter(())

    def _claude_files(self) -> Iterator[_File]:
        for place in ("projects", "transcripts"):
            yield from _files(self._folders.claude / place, (".jsonl",))

    def _codex_files(self) -> Iterator[_File]:
        for place in ("sessions", "archived_sessions"):
            files = list(_files(self._folders.codex / place, (".jsonl", ".jsonl.zst")))
            yield from _first_forms(files, ".jsonl.zst", ".jsonl")

    def _gemini_files(self) -> Iterator[_File]:
        for project in _folders(self._folders.gemini / "tmp"):
            files = list(_files(project / "chats", (".jsonl", ".json")))
            yield from _first_forms(files, ".json", ".jsonl")

    def _cursor_files(self) -> Iterator[_File]:
        for project in _folders(self._folders.cursor / "projects"):
            files = list(_files(project / "agent-transcripts", (".jsonl", ".txt")))
            yield from _first_forms(files, ".txt", ".jsonl")

    def _editor(self) -> list[Transcript]:
        """What is in the editor's database, which is gone through again only when it changed."""
        path = self._folders.cursor_user / DATABASE
        stamp = _stamp(path)
        if stamp is None:
            return []
        if self._composers[0] != stamp:
            found = composers(path)
            is_whole = all(isinstance(each, Composer) for each in found)
            self._composers = (stamp if is_whole else None, found)
        return self._composers[1]

    def _named(
        self, file: Path, sources: Sequence[str], projects: GeminiProjects
    ) -> list[Transcript]:
        path = _existing(file)
        source = sources[0] if len(sources) == 1 else guessed(path)
        if source is None or (sources and source not in sources):
            raise _unclear(file, sources or SOURCES)
        if source == CURSOR and path.suffix == DATABASE.suffix:
            return composers(path)
        return [_transcript(source, path, projects)]


def _transcript(
    source: str, path: Path, projects: GeminiProjects, seen: os.stat_result | None = None
) -> Transcript:
    if source == GEMINI and path.suffix == ".json":
        read = partial(object_events, projects=projects)
        return WholeTranscript(path, source, read, seen=seen)
    if source == CURSOR and path.suffix == ".txt":
        return WholeTranscript(path, source, text_events, seen=seen)
    formats = {
        CLAUDE_CODE: ClaudeCodeFormat,
        CODEX: CodexFormat,
        GEMINI: partial(GeminiFormat, projects=projects),
        CURSOR: CursorFormat,
        PLAIN: PlainFormat,
    }
    return LineTranscript(path, source, formats[source], seen=seen)


def _existing(file: Path) -> Path:
    """The file by the one name that it has however it is written."""
    try:
        path = file.expanduser().resolve()
        if path.is_file():
            return path
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):  # a folder that may not be looked into, a circle
        is_folder = False
    raise _no_file(file, is_folder=is_folder)


def _files(folder: Path, endings: tuple[str, ...], depth: int = 0) -> Iterator[_File]:
    """All in the folder and those below. What may not be looked into is passed by, as are links."""
    for entry in _entries(folder):
        try:
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(endings):
                # What Windows says of an entry is old while somebody writes to the file.
                yield _File(Path(entry.path), os.lstat(entry.path))
            elif depth < _DEEPEST and _is_folder(entry):
                yield from _files(Path(entry.path), endings, depth + 1)
        except OSError:  # it went away meanwhile
            continue


def _folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _entries(folder) if _is_folder(entry)]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Also a junction is a link, which only Windows knows and does not call one."""
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and getattr(about, "st_reparse_tag", 0) != _JUNCTION


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _first_forms(files: list[_File], other: str, preferred: str) -> list[_File]:
    """Without those of one ending that are there with the other one too."""
    names = {str(file.path) for file in files}
    return [
        file
        for file in files
        if not (name := str(file.path)).endswith(other)
        or name.removesuffix(other) + preferred not in names
    ]


def _stamp(path: Path) -> object | None:
    """Changes whenever a database does; None where there is none."""
    seen: list[tuple[int, int]] = []
    for each in (path, path.with_name(path.name + "-wal")):
        try:
            about = each.stat()
        except OSError:
            break
        seen.append((about.st_mtime_ns, about.st_size))
    return tuple(seen) or None


def _unknown(source: str) -> InvalidInput:
    return InvalidInput(
        f'There is no source "{source}".',
        hint=f"The sources are {', '.join(SOURCES)}.",
        argument="source",
        value=source,
        allowed=list(SOURCES),
    )


def _without_files() -> InvalidInput:
    return InvalidInput(
        f'The source "{PLAIN}" has no place of its own, so its files must be named.',
        hint=f"Give the files: everkept import history --source {PLAIN} FILE…",
        argument="files",
    )


def _no_file(file: Path, *, is_folder: bool) -> NotFound | InvalidInput:
    if is_folder:
        return InvalidInput(
            f"{file} is a folder.", hint="Name the files in it.", argument="files", value=str(file)
        )
    return NotFound("file", str(file), hint="Check its name; nothing was imported.")


def _unclear(file: Path, sources: Sequence[str]) -> InvalidInput:
    return InvalidInput(
        f"It cannot be told from {file} which program wrote it.",
        hint=f"Name the one source that it comes from: {', '.join(sources)}.",
        argument="source",
        allowed=list(sources),
    )
