"""Format of an exported folder: its content, line by line, as written and as read.

The whole folder is checked before anything is imported.
"""

import hashlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast
from urllib.parse import unquote

from everkept.core import disk
from everkept.core.disk import make_folder, open_private
from everkept.core.projects import validate_project_name
from everkept.core.records import Record, RecordLink
from everkept.core.sessions import parse_private_name, validate_account_name
from everkept.core.times import parse_time
from everkept.errors import InvalidInput, escape_name
from everkept.families.bank.model import INDEXED_FILE_KIND, SECTION_KIND
from everkept.families.history.ingest.checkpoints import GATE_ID
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TRANSCRIPT, TURN
from everkept.families.memories.memory_identity import MEMORY
from everkept.values import Value, ValueField, list_fields, replace

ExportItem = Record | RecordLink

_EPOCH = datetime(1970, 1, 1)
_TIME_FIELDS = frozenset({"created_at", "updated_at", "occurred_at", "deleted_at"})
_OMITTED_FIELDS = frozenset({"version"})  # the number of changes here, which is not part of the data
_RECORD_FIELDS = tuple(field for field in list_fields(Record) if field.name not in _OMITTED_FIELDS)
_LINK_FIELDS = list_fields(RecordLink)
_MAX_LINE_CHARACTERS = 4_000_000  # of a line


def format_line(thing: ExportItem) -> str:
    """Return the fields in a fixed order, without empty ones."""
    shown: dict[str, Any] = {}
    for field in _RECORD_FIELDS if isinstance(thing, Record) else _LINK_FIELDS:
        value: Any = getattr(thing, field.name)
        if value is None or value in ("", (), {}):
            continue
        shown[field.name] = format_exact_time(value) if field.name in _TIME_FIELDS else value
    return json.dumps(shown, ensure_ascii=False)


def parse_record(line: str) -> Record:
    """Parse a record. Raise ValueError with what is wrong."""
    return Record(**_parse_fields(line, _RECORD_FIELDS))


def parse_link(line: str) -> RecordLink:
    """Parse a link. Raise ValueError with what is wrong."""
    return RecordLink(**_parse_fields(line, _LINK_FIELDS))


def _parse_fields(line: str, known: Sequence[ValueField]) -> dict[str, Any]:
    values = _parse_object(line, {field.name for field in known})
    return {
        field.name: _check_value(field.name, values.get(field.name), field.is_required)
        for field in known
        if field.name in values or field.is_required
    }


def _parse_object(line: str, known: set[str]) -> Mapping[str, Any]:
    if len(line) > _MAX_LINE_CHARACTERS:
        raise ValueError(f"it is longer than {_MAX_LINE_CHARACTERS:,} characters")
    if not _is_valid_unicode(line):
        raise ValueError("it is not UTF-8")
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - one kind of error for a bad line
    values = cast(dict[str, Any], found)
    if unknown := sorted(values.keys() - known):
        raise ValueError(f'it has a field "{unknown[0]}", which is unknown')
    return values


def _check_value(name: str, value: Any, is_needed: bool) -> Any:
    if value is None and not is_needed:
        raise ValueError(f"`{name}` is null. Omit it instead")
    try:
        checked = _CHECKS.get(name, _check_text)(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"`{name}` is {value!r:.60}; {error}") from error
    return checked


def format_exact_time(at: int) -> str:
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds") + "Z"


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")  # noqa: TRY004
    if not _is_valid_unicode(value):
        raise ValueError("it contains an unpaired surrogate (invalid Unicode)")
    return value


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_name(value: Any) -> str:
    if not _check_text(value):
        raise ValueError("it must not be empty")
    return value


def _check_time(value: Any) -> int:
    return parse_time(_check_text(value))


def _check_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("it must be a number from 0 to 1")
    return value


def _check_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("it must be a whole number")
    return value


def _check_labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("it must be a list of texts")  # noqa: TRY004
    return tuple(_check_name(each) for each in cast(list[Any], value))


def _check_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it must be an object")  # noqa: TRY004
    found = cast(dict[str, Any], value)
    _check_text(json.dumps(found, ensure_ascii=False))
    return found


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIME_FIELDS, _check_time),
    **dict.fromkeys(("id", "kind", "source", "verb", "target"), _check_name),
    "importance": _check_number,
    "position": _check_count,
    "tags": _check_labels,
    "facets": _check_object,
}


MANIFEST_FILE = "everkept.json"
README_FILE = "README.md"
RECORDS_FILE = "records.jsonl"
LINKS_FILE = "links.jsonl"
PROJECT_FILE = "project.json"
USER_FOLDER = "user"
HISTORY_FOLDER = "history"
PROJECTS_FOLDER = "projects"
ACCOUNTS_FOLDER = "accounts"  # private data of accounts
ACCOUNT_FILE = "account.json"  # the account, because its name may belong to another one later

# Kinds that can be created again from files, or that only record progress.
EXCLUDED_KINDS = frozenset({SECTION_KIND, INDEXED_FILE_KIND, TRANSCRIPT, GATE_ID, "link"})
HISTORY_KINDS = frozenset({CONVERSATION, TURN, CODE, SYMBOL})

EXPORT_FORMAT = 1
FORMAT_NAME = "everkept export"

# Characters that file systems refuse or treat differently. `%` escapes them.
_UNSAFE_CHARACTERS = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*%]|^\.|[. ]$')
# On Windows, also before spaces and a suffix, with raised digits too.
_RESERVED_NAMES = re.compile(r"(?:con(?:in\$|out\$)?|prn|aux|nul|(?:com|lpt)[0-9¹²³])\s*(?:\.|$)", re.IGNORECASE)
DRAFT_SUFFIX = ".draft"  # suffix of a file that is being written
STALE_DRAFT_SECONDS = 3_600.0  # age at which a draft counts as abandoned
_MAX_NAME_CHARACTERS = 80  # of a folder's name, so that paths stay short
_MAX_NAME_BYTES = 190  # of it in UTF-8; file systems take 255, with the additions of a draft


class ExportManifest(Value):
    """Files that an export has written, by their paths in its folder."""

    files: tuple[str, ...]

    def to_text(self) -> str:
        facts = {"what": FORMAT_NAME, "format": EXPORT_FORMAT, "files": sorted(self.files)}
        return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"


def read_manifest(folder: Path) -> ExportManifest | None:
    """Return None if there is no export. Raise InvalidInput for one of a newer program."""
    try:
        facts: Any = json.loads(disk.read_limited(folder / MANIFEST_FILE, MAX_FACTS_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{folder / MANIFEST_FILE} cannot be read ({error}).",
            hint="Export into another folder, or restore an earlier version of this file.",
        ) from error
    known = cast(Mapping[str, Any], facts if isinstance(facts, dict) else {})
    if known.get("what") != FORMAT_NAME:
        raise InvalidInput(f"{folder / MANIFEST_FILE} is not the file list of an Everkept export.", hint=RESTORE_HINT)
    if known.get("format") != EXPORT_FORMAT:
        raise InvalidInput(
            f"{folder} has format {known.get('format')!r}; this program supports {EXPORT_FORMAT}.",
            hint="Update Everkept.",
        )
    files: Any = known.get("files")
    if not isinstance(files, list) or not all(isinstance(f, str) for f in cast(list[Any], files)):
        raise InvalidInput(f"{folder / MANIFEST_FILE} does not list its files.", hint=RESTORE_HINT)
    return ExportManifest(tuple(cast(list[str], files)))


def check_target(folder: Path) -> ExportManifest:
    """Return the list of the last export. Raise InvalidInput if the folder contains other data."""
    if folder.is_file():
        raise InvalidInput(f"{folder} is a file.", hint="Name a folder.")
    known = read_manifest(folder) if folder.exists() else None
    if known is not None:
        return known
    if folder.exists() and any(not _is_ours_or_git(each) for each in folder.iterdir()):
        raise InvalidInput(
            f"{folder} is not empty and does not contain an Everkept export.",
            hint="Specify a new or empty folder, or that of an earlier export.",
        )
    return ExportManifest(())


def _is_ours_or_git(path: Path) -> bool:
    return path.name == ".git" or path.name.endswith(DRAFT_SUFFIX)


def assign_folder_names(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct folder for each name that every file system accepts."""
    folders: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names):
        folder = build_file_name(name)
        if folder.casefold() in taken:
            folder = f"{folder}~{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
        taken.add(folder.casefold())
        folders[name] = folder
    return folders


def build_file_name(name: str) -> str:
    shown = _UNSAFE_CHARACTERS.sub(lambda found: f"%{ord(found[0]):02X}", name)
    if _RESERVED_NAMES.match(shown):
        shown = f"%{ord(shown[0]):02X}{shown[1:]}"
    short = shown[:_MAX_NAME_CHARACTERS].encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    if short != shown:
        suffix = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        shown = f"{short}~{suffix}"
    return shown


class ExportDrafts:
    """Files under temporary names until all are written, so a crash leaves the old ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drafts: dict[str, Path] = {}

    def get_path(self, name: str) -> Path:
        """Return the path to write for the file of this name."""
        target = self._folder / name
        make_folder(target.parent)
        draft = target.with_name(f".{target.name}.{os.getpid()}{DRAFT_SUFFIX}")
        self._drafts[name] = draft
        return draft

    def open(self, name: str) -> TextIO:
        """Open a draft, readable only by its owner."""
        return open(self.get_path(name), "w", encoding="utf-8", newline="\n", opener=open_private)

    def remove_stale(self) -> None:
        """Delete the drafts of a killed export. Drafts of a running one are younger."""
        before = time.time() - STALE_DRAFT_SECONDS
        for draft in self._folder.rglob(f".*{DRAFT_SUFFIX}"):
            with suppress(OSError):
                if draft.stat().st_mtime < before:
                    draft.unlink()

    def begin(self) -> None:
        """Mark the folder as an export, so that a killed one can be repeated."""
        if not (self._folder / MANIFEST_FILE).exists():
            self._write_manifest(ExportManifest(()))
            self._publish_file(MANIFEST_FILE)

    def publish(self, old: ExportManifest, replaces: str = "") -> None:
        """Rename each draft, delete the files that only the last export wrote, then write the new list. Until then, the
        next export finds in the old list what to delete.

        Only files inside the folder that this export `replaces` are deleted.
        """
        kept = [name for name in old.files if not name.startswith(replaces)]
        new = ExportManifest(tuple({*kept, *self._drafts, MANIFEST_FILE}))
        for name in list(self._drafts):
            self._publish_file(name)
        remove_old(self._folder, old, new)
        self._write_manifest(new)
        self._publish_file(MANIFEST_FILE)

    def _write_manifest(self, manifest: ExportManifest) -> None:
        with self.open(MANIFEST_FILE) as file:
            file.write(manifest.to_text())

    def _publish_file(self, name: str) -> None:
        """Publish a file, unless it already has this content."""
        draft, target = self._drafts.pop(name), self._folder / name
        if target.is_file() and _has_same_content(draft, target):
            draft.unlink()
        else:
            draft.replace(target)

    def discard(self) -> None:
        # A copy, because an interrupted caller may leave a thread that works on the rest.
        for draft in list(self._drafts.values()):
            draft.unlink(missing_ok=True)


def remove_old(folder: Path, old: ExportManifest, new: ExportManifest) -> None:
    """Delete the files that only the last export wrote, and empty folders."""
    for name in sorted({*old.files} - {*new.files}):
        path = folder / name
        if not _is_inside(folder, path):
            continue
        path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent == folder or not parent.is_dir() or any(parent.iterdir()):
                break
            parent.rmdir()


def _is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path is inside the folder, because the list may have been edited."""
    return folder.resolve() in path.resolve().parents and not path.is_dir()


def _has_same_content(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while chunk := first.read(1 << 16):
            if chunk != second.read(1 << 16):
                return False
    return True


T = TypeVar("T")

MAX_FACTS_BYTES = 16 * 1024 * 1024  # of a file that is read as a whole
MAX_LINE_CHARACTERS = 16 * 1024 * 1024  # of one record or link
CONFLICT_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
RESTORE_HINT = "Restore an earlier version of that file, or export again."
REPAIR_HINT = "Fix or remove that line, or export again."
FOLDER_HINT = (
    "Specify a folder written by `everkept export`. For conversations, run `everkept import history`. "
    "For a file of the official memory server, run `everkept import server-memory`."
)


class ExportSection(Value):
    """One store of an export. `name` is that of its project, or None. `account` and `account_id` are those of a private
    store, if the export contains the id.
    """

    folder: Path
    name: str | None = None
    account: str | None = None
    account_id: str | None = None
    description: str = ""
    folders: tuple[str, ...] = ()
    records: int = 0
    links: int = 0

    @property
    def is_history(self) -> bool:
        return self.name is None and self.folder.name == HISTORY_FOLDER

    def read_record_chunks(self, size: int) -> Iterator[list[Record]]:
        return _read_chunks(self.folder / RECORDS_FILE, parse_record, size)

    def read_link_chunks(self, size: int) -> Iterator[list[RecordLink]]:
        return _read_chunks(self.folder / LINKS_FILE, parse_link, size)


def read_export(folder: Path) -> list[ExportSection]:
    """Read an export. Raise InvalidInput with file and line for any fault."""
    if not folder.is_dir():
        fault = "is not a folder" if folder.exists() else "does not exist"
        raise InvalidInput(f"{folder} {fault}.", hint=FOLDER_HINT)
    _refuse_links(folder)
    if read_manifest(folder) is None:
        raise InvalidInput(f"{folder} is not an Everkept export, because it has no everkept.json.", hint=FOLDER_HINT)
    projects = sorted((folder / PROJECTS_FOLDER).iterdir()) if (folder / PROJECTS_FOLDER).is_dir() else []
    sections = [ExportSection(folder / USER_FOLDER)] if (folder / USER_FOLDER).is_dir() else []
    sections += [_read_project(each) for each in projects if each.is_dir()]
    if (folder / HISTORY_FOLDER).is_dir():
        sections.append(ExportSection(folder / HISTORY_FOLDER))
    sections += _read_accounts(folder / ACCOUNTS_FOLDER)
    names = [section.name for section in sections if section.name is not None]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f'{folder} has two folders of the project "{twice}".', hint="Remove one of them.")
    return [_check_section(section) for section in sections]


def _refuse_links(folder: Path) -> None:
    """Refuse links in an export, which could lead to any file of this machine."""
    tops = (MANIFEST_FILE, USER_FOLDER, HISTORY_FOLDER, PROJECTS_FOLDER, ACCOUNTS_FOLDER)
    real = folder.resolve()
    walks = (found for top in tops[1:] for found in os.walk(real / top))
    below = (Path(parent, name) for parent, folders, files in walks for name in (*folders, *files))
    for path in (*(real / top for top in tops), *below):
        if path.is_symlink() or (sys.platform == "win32" and path.is_dir() and path.resolve() != path):  # a junction
            raise InvalidInput(
                f"{escape_name(str(path))} is a link, which an import does not follow.",
                hint="Replace it with the file or folder that it leads to.",
            )


def _read_accounts(folder: Path) -> Iterator[ExportSection]:
    for each in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not each.is_dir():
            continue
        account = validate_account_name(unquote(each.name))
        if build_file_name(account) != each.name:
            raise InvalidInput(
                f"{each} does not have the name of an account's folder: {build_file_name(account)}.",
                hint="Rename it to that, or remove it.",
            )
        known = _read_account_id(each / ACCOUNT_FILE)
        for home in (each / USER_FOLDER, each / HISTORY_FOLDER):
            if home.is_dir():
                yield ExportSection(home, account=account, account_id=known)


def _read_account_id(path: Path) -> str | None:
    """Return None if the export does not contain the id."""
    if not path.exists():
        return None
    known = _read_facts(path).get("id")
    if not isinstance(known, str):
        raise InvalidInput(f"{path} does not contain the id of an account.", hint=REPAIR_HINT)
    return known


def _read_facts(path: Path) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(disk.read_limited(path, MAX_FACTS_BYTES))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read ({error}).", hint=REPAIR_HINT) from error
    return cast(Mapping[str, Any], found if isinstance(found, dict) else {})


def _read_project(folder: Path) -> ExportSection:
    path = folder / PROJECT_FILE
    try:
        facts = _read_facts(path)
    except FileNotFoundError as error:
        raise InvalidInput(
            f"{path} is missing, which has the name of the project.",
            hint="Restore it from an earlier version of the export, or remove its folder.",
        ) from error
    name, description = facts.get("name"), facts.get("description", "")
    folders: Any = facts.get("folders", [])
    if (
        not isinstance(name, str)
        or not isinstance(description, str)
        or not isinstance(folders, list)
        or not all(isinstance(each, str) for each in cast(list[Any], folders))
    ):
        raise InvalidInput(f"{path} must have the name, description and folders of a project.")
    if own := parse_private_name(name):
        raise InvalidInput(
            f"{path} names {name!r}, which is private data of an account and not a project.",
            hint=f"Put its lines into {ACCOUNTS_FOLDER}/{build_file_name(own.user)}/{own.home}. "
            "Export again, or remove the folder.",
        )
    paths = tuple(cast(list[str], folders))
    return ExportSection(folder, validate_project_name(name), description=description, folders=paths)


def _check_section(section: ExportSection) -> ExportSection:
    """Read a section completely, so that a bad line is found before any change."""
    records = 0
    for chunk in section.read_record_chunks(1_000):
        records += len(chunk)
        for record in chunk:
            _check_place(section, record)
    links = sum(map(len, section.read_link_chunks(1_000)))
    return replace(section, records=records, links=links)


def _check_place(section: ExportSection, record: Record) -> None:
    """Refuse private data in a wrong place, where others would see it."""
    is_of_past = record.kind in HISTORY_KINDS
    is_of_user = record.kind == MEMORY and record.scope == USER_FOLDER
    is_users = section.name is None and not section.is_history
    if (
        record.kind in EXCLUDED_KINDS
        or is_of_past != section.is_history
        or (record.kind == MEMORY and is_of_user != is_users)
    ):
        raise InvalidInput(
            f"{section.folder / RECORDS_FILE}: the record {record.id!r:.80} of kind "
            f"{record.kind!r:.40} "
            "does not belong there. Nothing was imported.",
            hint="Move it to its file, or remove that line.",
        )


def _read_chunks(path: Path, read: Callable[[str], T], size: int) -> Iterator[list[T]]:
    lines = _read_items(path, read)
    while chunk := list(islice(lines, size)):
        yield chunk


def _read_items(path: Path, read: Callable[[str], T]) -> Iterator[T]:
    try:
        # An invalid character is found in its line, which the error can name.
        with (
            disk.open_regular(path) as content,
            io.TextIOWrapper(content, encoding="utf-8", errors="surrogateescape", newline="\n") as file,
        ):
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_CHARACTERS + 1), ""), 1):
                if len(line) > MAX_LINE_CHARACTERS:
                    raise InvalidInput(
                        f"{path}, line {number} must have at most {MAX_LINE_CHARACTERS:,} characters.",
                        hint="Restore the file from an earlier version of the export.",
                        file=str(path),
                        line=number,
                    )
                if line.strip():
                    yield _parse_item(path, number, line, read)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}).", hint="Check its permissions.") from error


def _parse_item(path: Path, number: int, line: str, read: Callable[[str], T]) -> T:
    try:
        return read(line)
    except ValueError as error:
        is_conflict = line.startswith(CONFLICT_MARKERS)
        reason = "it is a conflict marker of git" if is_conflict else error
        raise InvalidInput(
            f"{path}, line {number}: {reason}. Nothing was imported.", hint=REPAIR_HINT, file=str(path), line=number
        ) from error
