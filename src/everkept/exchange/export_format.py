"""The format of an exported folder: what it contains, line by line, as written and as read.

All of a folder is checked before anything of it is imported.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast
from urllib.parse import unquote

from everkept.core.disk import make_folder, open_private
from everkept.core.projects import checked_project_name
from everkept.core.records import Link, Record
from everkept.core.sessions import checked_account_name, home_of
from everkept.core.times import parsed
from everkept.errors import InvalidInput
from everkept.families.bank.model import INDEXED_FILE, SECTION
from everkept.families.history.ingest.checkpoints import GATE
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TRANSCRIPT, TURN
from everkept.families.memories.memory_identity import MEMORY
from everkept.values import Field, Value, fields, replace

Thing = Record | Link

_START = datetime(1970, 1, 1)
_MOMENTS = frozenset({"created_at", "updated_at", "occurred_at", "deleted_at"})
_NOT_WRITTEN = frozenset({"version"})  # how often it was changed here, and nothing of it
_RECORD = tuple(field for field in fields(Record) if field.name not in _NOT_WRITTEN)
_LINK = fields(Link)
_MAX_LINE = 4_000_000  # characters of a line


def line_of(thing: Thing) -> str:
    """The fields in one order, those that are empty left out."""
    shown: dict[str, Any] = {}
    for field in _RECORD if isinstance(thing, Record) else _LINK:
        value: Any = getattr(thing, field.name)
        if value is None or value in ("", (), {}):
            continue
        shown[field.name] = _moment(value) if field.name in _MOMENTS else value
    return json.dumps(shown, ensure_ascii=False)


def record_of(line: str) -> Record:
    """Raises ValueError, with what is wrong."""
    return Record(**_given(line, _RECORD))


def link_of(line: str) -> Link:
    """Raises ValueError, with what is wrong."""
    return Link(**_given(line, _LINK))


def _given(line: str, known: Sequence[Field]) -> dict[str, Any]:
    values = _values(line, {field.name for field in known})
    return {
        field.name: _checked(field.name, values.get(field.name), field.is_required)
        for field in known
        if field.name in values or field.is_required
    }


def _values(line: str, known: set[str]) -> Mapping[str, Any]:
    if len(line) > _MAX_LINE:
        raise ValueError(f"it is longer than {_MAX_LINE:,} characters")
    if not _is_whole(line):
        raise ValueError("it is not UTF-8")
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - one kind of error for a bad line
    values = cast(dict[str, Any], found)
    if unknown := sorted(values.keys() - known):
        raise ValueError(f'it has a field "{unknown[0]}", which this program does not know')
    return values


def _checked(name: str, value: Any, is_needed: bool) -> Any:
    if value is None and not is_needed:
        raise ValueError(f"`{name}` is null; leave it out instead")
    try:
        checked = _CHECKS.get(name, _text)(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"`{name}` is {value!r:.60}; {error}") from error
    return checked


def _moment(at: int) -> str:
    return (_START + timedelta(microseconds=at)).isoformat(timespec="microseconds") + "Z"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")  # noqa: TRY004
    if not _is_whole(value):
        raise ValueError("it has half of a character")
    return value


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _name(value: Any) -> str:
    if not _text(value):
        raise ValueError("it must not be empty")
    return value


def _time(value: Any) -> int:
    return parsed(_text(value))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("it must be a number from 0 to 1")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("it must be a whole number")
    return value


def _labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("it must be a list of texts")  # noqa: TRY004
    return tuple(_name(each) for each in cast(list[Any], value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it must be an object")  # noqa: TRY004
    found = cast(dict[str, Any], value)
    _text(json.dumps(found, ensure_ascii=False))
    return found


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_MOMENTS, _time),
    **dict.fromkeys(("id", "kind", "source", "verb", "target"), _name),
    "importance": _number,
    "position": _count,
    "tags": _labels,
    "facets": _object,
}


MANIFEST = "everkept.json"
ABOUT = "README.md"
RECORDS = "records.jsonl"
LINKS = "links.jsonl"
PROJECT = "project.json"
USER = "user"
HISTORY = "history"
PROJECTS = "projects"
ACCOUNTS = "accounts"  # what is theirs alone
ACCOUNT = "account.json"  # which account it was: its name may be another's by now

# What can be made again from files, or says only how far something has come.
LEFT_OUT = frozenset({SECTION, INDEXED_FILE, TRANSCRIPT, GATE, "link"})
OF_HISTORY = frozenset({CONVERSATION, TURN, CODE, SYMBOL})

FORMAT = 1
NAME = "everkept export"

# What no file system takes, or takes for something else; `%` is what stands for them.
_UNUSUAL = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*%]|^\.|[. ]$')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
DRAFT = ".draft"  # ends the name of a file that is being written
OLD = 3_600.0  # seconds after which a draft is nobody's any more
_MAX_NAME = 80  # characters of a folder's name, so that paths stay short


class Manifest(Value):
    """The files that an export has written, by their paths from its folder."""

    files: tuple[str, ...]

    def text(self) -> str:
        facts = {"what": NAME, "format": FORMAT, "files": sorted(self.files)}
        return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is no export. Raises InvalidInput for one of a newer program."""
    try:
        facts: Any = json.loads((folder / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{folder / MANIFEST} cannot be read ({error}).",
            hint="Export into another folder, or take an earlier version of this file.",
        ) from error
    known = cast(Mapping[str, Any], facts if isinstance(facts, dict) else {})
    if known.get("what") != NAME:
        raise InvalidInput(f"{folder / MANIFEST} is not the list of an export of Everkept.")
    if known.get("format") != FORMAT:
        raise InvalidInput(
            f"{folder} has format {known.get('format')!r}; this program knows {FORMAT}.",
            hint="Update Everkept.",
        )
    files: Any = known.get("files")
    if not isinstance(files, list) or not all(isinstance(f, str) for f in cast(list[Any], files)):
        raise InvalidInput(f"{folder / MANIFEST} does not list its files.")
    return Manifest(tuple(cast(list[str], files)))


def checked_target(folder: Path) -> Manifest:
    """What is there from the last export. Raises InvalidInput where other things lie there."""
    if folder.is_file():
        raise InvalidInput(f"{folder} is a file.", hint="Name a folder.")
    known = read_manifest(folder) if folder.exists() else None
    if known is not None:
        return known
    if folder.exists() and any(not _is_ours_or_git(each) for each in folder.iterdir()):
        raise InvalidInput(
            f"{folder} is not empty, and holds no export of Everkept.",
            hint="Name an empty folder, a new one, or that of an earlier export.",
        )
    return Manifest(())


def _is_ours_or_git(path: Path) -> bool:
    return path.name == ".git" or path.name.endswith(DRAFT)


def folder_names(names: Iterable[str]) -> dict[str, str]:
    """A folder for each name, that any file system takes and tells from the others."""
    folders: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names):
        folder = file_name(name)
        if folder.casefold() in taken:
            folder = f"{folder}~{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
        taken.add(folder.casefold())
        folders[name] = folder
    return folders


def file_name(name: str) -> str:
    shown = _UNUSUAL.sub(lambda found: f"%{ord(found[0]):02X}", name)
    if _RESERVED.match(shown):
        shown = f"%{ord(shown[0]):02X}{shown[1:]}"
    if len(shown) > _MAX_NAME:
        shown = f"{shown[:_MAX_NAME]}~{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
    return shown


class Drafts:
    """Files under other names until all are written, so that a crash leaves the old ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drafts: dict[str, Path] = {}

    def path(self, name: str) -> Path:
        """Where to write what is to be the file of this name."""
        target = self._folder / name
        make_folder(target.parent)
        draft = target.with_name(f".{target.name}.{os.getpid()}{DRAFT}")
        self._drafts[name] = draft
        return draft

    def open(self, name: str) -> TextIO:
        """Readable by its owner alone, as all that is remembered."""
        return open(self.path(name), "w", encoding="utf-8", newline="\n", opener=open_private)

    def sweep(self) -> None:
        """Takes away what an export has left that was killed; one that runs now is younger."""
        before = time.time() - OLD
        for draft in self._folder.rglob(f".*{DRAFT}"):
            with suppress(OSError):
                if draft.stat().st_mtime < before:
                    draft.unlink()

    def begin(self) -> None:
        """Makes the folder known as that of an export, so that one that is killed can be done
        again."""
        if not (self._folder / MANIFEST).exists():
            self._write_list(Manifest(()))
            self._settle(MANIFEST)

    def settle(self, old: Manifest, replaces: str = "") -> None:
        """Gives each its name, takes away what the last export wrote and this one did not, and
        then says so: until then the old list tells the next one what is to go.

        Only what lies in the folder that this one `replaces` is meant by it.
        """
        kept = [name for name in old.files if not name.startswith(replaces)]
        new = Manifest(tuple({*kept, *self._drafts, MANIFEST}))
        for name in list(self._drafts):
            self._settle(name)
        remove_old(self._folder, old, new)
        self._write_list(new)
        self._settle(MANIFEST)

    def _write_list(self, manifest: Manifest) -> None:
        with self.open(MANIFEST) as file:
            file.write(manifest.text())

    def _settle(self, name: str) -> None:
        """A file that has this very content already stays as it is."""
        draft, target = self._drafts.pop(name), self._folder / name
        if target.is_file() and _same(draft, target):
            draft.unlink()
        else:
            draft.replace(target)

    def discard(self) -> None:
        # A copy: who is interrupted may have left another thread at work on the rest.
        for draft in list(self._drafts.values()):
            draft.unlink(missing_ok=True)


def remove_old(folder: Path, old: Manifest, new: Manifest) -> None:
    """Takes away what the last export wrote and this one did not, and folders left empty."""
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
    """A list that somebody has edited must not reach what is not ours."""
    return folder.resolve() in path.resolve().parents and not path.is_dir()


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while chunk := first.read(1 << 16):
            if chunk != second.read(1 << 16):
                return False
    return True


T = TypeVar("T")

CONFLICTS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
REPAIR = "Mend that line, remove it, or export anew."
HINT = (
    "Name the folder that `everkept export` has written. `everkept import history` reads "
    "conversations, `everkept import server-memory` the file of the official memory server."
)


class Section(Value):
    """One store of an export. `name` is that of its project, or None for what has none; `account`
    that of the one whose alone it is, and `account_id` its id, where the export tells it."""

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
        return self.name is None and self.folder.name == HISTORY

    def record_chunks(self, size: int) -> Iterator[list[Record]]:
        return _chunks(self.folder / RECORDS, record_of, size)

    def link_chunks(self, size: int) -> Iterator[list[Link]]:
        return _chunks(self.folder / LINKS, link_of, size)


def read_export(folder: Path) -> list[Section]:
    """Raises InvalidInput, with file and line, for what is not as an export writes it."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder.", hint=HINT)
    if read_manifest(folder) is None:
        raise InvalidInput(
            f"{folder} holds no export of Everkept: it has no everkept.json.",
            hint=HINT,
        )
    projects = sorted((folder / PROJECTS).iterdir()) if (folder / PROJECTS).is_dir() else []
    sections = [Section(folder / USER)] if (folder / USER).is_dir() else []
    sections += [_project(each) for each in projects if each.is_dir()]
    if (folder / HISTORY).is_dir():
        sections.append(Section(folder / HISTORY))
    sections += _of_accounts(folder / ACCOUNTS)
    names = [section.name for section in sections if section.name is not None]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f'{folder} has two folders of the project "{twice}".')
    return [_checked_section(section) for section in sections]


def _of_accounts(folder: Path) -> Iterator[Section]:
    for each in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not each.is_dir():
            continue
        account = checked_account_name(unquote(each.name))
        if file_name(account) != each.name:
            raise InvalidInput(
                f"{each} is not called as the folder of an account is: {file_name(account)}.",
                hint="Give it that name, or remove it.",
            )
        known = _account_id(each / ACCOUNT)
        for home in (each / USER, each / HISTORY):
            if home.is_dir():
                yield Section(home, account=account, account_id=known)


def _account_id(path: Path) -> str | None:
    """None where the export does not tell it."""
    if not path.exists():
        return None
    known = _facts_in(path).get("id")
    if not isinstance(known, str):
        raise InvalidInput(f"{path} does not tell the id of an account.", hint=REPAIR)
    return known


def _facts_in(path: Path) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read ({error}).", hint=REPAIR) from error
    return cast(Mapping[str, Any], found if isinstance(found, dict) else {})


def _project(folder: Path) -> Section:
    path = folder / PROJECT
    try:
        facts = _facts_in(path)
    except FileNotFoundError as error:
        raise InvalidInput(
            f"{path} is missing, which tells the name of the project.",
            hint="Take it from an earlier version of the export, or remove its folder.",
        ) from error
    name, description = facts.get("name"), facts.get("description", "")
    folders: Any = facts.get("folders", [])
    if (
        not isinstance(name, str)
        or not isinstance(description, str)
        or not isinstance(folders, list)
        or not all(isinstance(each, str) for each in cast(list[Any], folders))
    ):
        raise InvalidInput(f"{path} does not tell name, description and folders of a project.")
    if own := home_of(name):
        raise InvalidInput(
            f"{path} names {name!r}, which is what an account keeps for itself and no project.",
            hint=f"Its lines belong in {ACCOUNTS}/{file_name(own.user)}/{own.home}: export anew, "
            "or remove the folder.",
        )
    paths = tuple(cast(list[str], folders))
    return Section(folder, checked_project_name(name), description=description, folders=paths)


def _checked_section(section: Section) -> Section:
    """Reads it all once, so that a bad line is found before anything has changed."""
    records = 0
    for chunk in section.record_chunks(1_000):
        records += len(chunk)
        for record in chunk:
            _check_place(section, record)
    links = sum(map(len, section.link_chunks(1_000)))
    return replace(section, records=records, links=links)


def _check_place(section: Section, record: Record) -> None:
    """What lies in the wrong place would be seen by those whom it is not meant for."""
    is_of_past = record.kind in OF_HISTORY
    is_of_user = record.kind == MEMORY and record.scope == USER
    is_users = section.name is None and not section.is_history
    if (
        record.kind in LEFT_OUT
        or is_of_past != section.is_history
        or (record.kind == MEMORY and is_of_user != is_users)
    ):
        raise InvalidInput(
            f"{section.folder / RECORDS}: the record {record.id!r:.80} of kind {record.kind!r:.40} "
            "does not belong there. Nothing was taken in."
        )


def _chunks(path: Path, read: Callable[[str], T], size: int) -> Iterator[list[T]]:
    lines = _things(path, read)
    while chunk := list(islice(lines, size)):
        yield chunk


def _things(path: Path, read: Callable[[str], T]) -> Iterator[T]:
    try:
        # A letter that is none is found in its line, where it can be named.
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _thing(path, number, line, read)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}).") from error


def _thing(path: Path, number: int, line: str, read: Callable[[str], T]) -> T:
    try:
        return read(line)
    except ValueError as error:
        is_conflict = line.startswith(CONFLICTS)
        reason = "it is what git leaves of a conflict" if is_conflict else error
        raise InvalidInput(
            f"{path}, line {number}: {reason}. Nothing was taken in.",
            hint=REPAIR,
            file=str(path),
            line=number,
        ) from error
