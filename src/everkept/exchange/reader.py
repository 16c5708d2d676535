"""An exported folder as it is read: all of it is checked before anything of it is taken in."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from everkept.core.accounts import checked_account_name, home_of
from everkept.core.projects import checked_project_name
from everkept.core.records import Link, Record
from everkept.errors import InvalidInput
from everkept.exchange.export_format import (
    ACCOUNT,
    ACCOUNTS,
    HISTORY,
    LEFT_OUT,
    LINKS,
    OF_HISTORY,
    PROJECT,
    PROJECTS,
    RECORDS,
    USER,
    file_name,
    link_of,
    read_manifest,
    record_of,
)
from everkept.families.memories.kinds import MEMORY
from everkept.values import Value, replace

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
    return [_checked(section) for section in sections]


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


def _checked(section: Section) -> Section:
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
