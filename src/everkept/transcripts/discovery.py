"""Discovery of the transcripts on this machine."""

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
from everkept.transcripts.cursor_agents import CursorFormat, parse_text
from everkept.transcripts.cursor_editor import DATABASE_PATH, Composer, list_composers
from everkept.transcripts.documents import DocumentTranscript, LineTranscript, PlainFormat
from everkept.transcripts.gemini import GeminiFormat, GeminiProjects, parse_object
from everkept.transcripts.source_programs import (
    CLAUDE_CODE,
    CODEX,
    CURSOR,
    GEMINI,
    PLAIN,
    SOURCES,
    ClientFolders,
    guess_source,
)

_MAX_DEPTH = 12  # nested folders
_JUNCTION_TAG = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT


class _FoundFile(NamedTuple):
    path: Path
    seen: os.stat_result


class _DatedTranscript(NamedTuple):
    modified: int
    is_second: bool  # True if it sorts after transcripts of the same age
    name: str
    transcript: Transcript


class MachineTranscripts:
    """Implementation of Transcripts with a cache of the editor's database. `known` lists possible project folders."""

    def __init__(self, folders: ClientFolders, known: Iterable[str] = ()) -> None:
        self._folders = folders
        self.sources = SOURCES
        self.known = tuple(known)
        self._composers: tuple[object, list[Transcript]] = (None, [])

    def find_transcripts(self, sources: Sequence[str] = (), files: Sequence[Path] = ()) -> list[Transcript]:
        for source in sources:
            if source not in SOURCES:
                raise InvalidInput(
                    f'Source "{source}" does not exist.',
                    hint=f"Use one of {', '.join(SOURCES)}.",
                    argument="source",
                    value=source,
                    allowed=list(SOURCES),
                )
        projects = GeminiProjects(self._folders.gemini, self.known)
        if files:
            named = (self._list_named(file, sources, projects) for file in files)
            return [transcript for transcripts in named for transcript in transcripts]
        if PLAIN in sources:
            raise InvalidInput(
                f'Source "{PLAIN}" has no default folder, so you must name its files.',
                hint=f"Run everkept import history --source {PLAIN} FILE…",
                argument="files",
            )
        dated = [each for source in sources or SOURCES for each in self._list_dated(source, projects)]
        return [each.transcript for each in sorted(dated, key=lambda each: each[:3])]

    def _list_dated(self, source: str, projects: GeminiProjects) -> Iterator["_DatedTranscript"]:
        elsewhere = self._list_editor_transcripts() if source == CURSOR else []
        # The editor's database has more details of a conversation than its file, so it comes first.
        held = {each.session: each.modified for each in elsewhere if isinstance(each, Composer)}
        for file in self._list_files(source):
            transcript = _build_transcript(source, file.path, projects, file.seen)
            in_database = held.get(file.path.stem) if held else None
            latest = max(transcript.modified, in_database or 0)
            yield _DatedTranscript(latest, in_database is not None, transcript.name, transcript)
        for transcript in elsewhere:
            yield _DatedTranscript(transcript.modified, False, transcript.name, transcript)

    def _list_files(self, source: str) -> Iterator[_FoundFile]:
        folders = self._folders
        if source == CLAUDE_CODE:
            for place in ("projects", "transcripts"):
                yield from _walk_files(folders.claude / place, (".jsonl",))
        elif source == CODEX:
            for place in ("sessions", "archived_sessions"):
                yield from _list_preferred(folders.codex / place, ".jsonl", ".jsonl.zst")
        elif source == GEMINI:
            for project in _list_folders(folders.gemini / "tmp"):
                yield from _list_preferred(project / "chats", ".jsonl", ".json")
        elif source == CURSOR:
            for project in _list_folders(folders.cursor / "projects"):
                yield from _list_preferred(project / "agent-transcripts", ".jsonl", ".txt")

    def _list_editor_transcripts(self) -> list[Transcript]:
        """Return the transcripts in the editor's database. Read the database again only if it changed."""
        path = self._folders.cursor_user / DATABASE_PATH
        stamp = _read_stamp(path)
        if stamp is None:
            return []
        if self._composers[0] != stamp:
            found = list_composers(path)
            is_whole = all(isinstance(each, Composer) for each in found)
            self._composers = (stamp if is_whole else None, found)
        return self._composers[1]

    def _list_named(self, file: Path, sources: Sequence[str], projects: GeminiProjects) -> list[Transcript]:
        path = _resolve_file(file)
        source = sources[0] if len(sources) == 1 else guess_source(path)
        if source is None or (sources and source not in sources):
            raise InvalidInput(
                f"Cannot determine which program wrote {file}.",
                hint=f"Specify exactly one source: {', '.join(sources or SOURCES)}.",
                argument="source",
                allowed=list(sources or SOURCES),
            )
        if source == CURSOR and path.suffix == DATABASE_PATH.suffix:
            return list_composers(path)
        return [_build_transcript(source, path, projects)]


def _build_transcript(
    source: str, path: Path, projects: GeminiProjects, seen: os.stat_result | None = None
) -> Transcript:
    if source == GEMINI and path.suffix == ".json":
        read = partial(parse_object, projects=projects)
        return DocumentTranscript(path, source, read, seen=seen)
    if source == CURSOR and path.suffix == ".txt":
        return DocumentTranscript(path, source, parse_text, seen=seen)
    formats = {
        CLAUDE_CODE: ClaudeCodeFormat,
        CODEX: CodexFormat,
        GEMINI: partial(GeminiFormat, projects=projects),
        CURSOR: CursorFormat,
        PLAIN: PlainFormat,
    }
    return LineTranscript(path, source, formats[source], seen=seen)


def _resolve_file(file: Path) -> Path:
    """Return the resolved path of an existing file, so that each file has one name."""
    try:
        path = file.expanduser().resolve()
        if path.is_file():
            return path
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):  # an unreadable folder, or a loop of links
        is_folder = False
    if is_folder:
        raise InvalidInput(f"{file} is a folder.", hint="Name the files in it.", argument="files", value=str(file))
    raise NotFound("file", str(file), hint="Check its name. Nothing was imported.")


def _walk_files(folder: Path, endings: tuple[str, ...], depth: int = 0) -> Iterator[_FoundFile]:
    """Yield all matching files in the folder and below. Skip links and unreadable folders."""
    for entry in _list_entries(folder):
        try:
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(endings):
                # On Windows, the data in a directory entry is outdated while another process writes the file.
                yield _FoundFile(Path(entry.path), os.lstat(entry.path))
            elif depth < _MAX_DEPTH and _is_folder(entry):
                yield from _walk_files(Path(entry.path), endings, depth + 1)
        except OSError:  # deleted since the folder was listed
            continue


def _list_folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _list_entries(folder) if _is_folder(entry)]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether the entry is a real folder. A Windows junction is a link, but `is_symlink` does not report it."""
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and getattr(about, "st_reparse_tag", 0) != _JUNCTION_TAG


def _list_entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _list_preferred(folder: Path, preferred: str, other: str) -> list[_FoundFile]:
    """List the files with either ending. Skip those with `other` that also exist with `preferred`."""
    files = list(_walk_files(folder, (preferred, other)))
    names = {str(file.path) for file in files}
    return [
        file
        for file in files
        if not (name := str(file.path)).endswith(other) or name.removesuffix(other) + preferred not in names
    ]


def _read_stamp(path: Path) -> object | None:
    """Return a value that changes with the database, or None if the database does not exist."""
    seen: list[tuple[int, int]] = []
    for each in (path, path.with_name(path.name + "-wal")):
        try:
            about = each.stat()
        except OSError:
            break
        seen.append((about.st_mtime_ns, about.st_size))
    return tuple(seen) or None
