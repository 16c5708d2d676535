"""What was decided since a backup was made holds when it comes back.

What is off stays off, with all the times that it was off; tokens, accounts and grants are those of
now, so that none that was revoked is valid again, and what was a removed account's alone does not
come back, whoever has its name by now; and notes of the kinds that the caller names are kept.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from everkept.core.accounts import NOTES, is_anothers
from everkept.core.disk import make_folder
from everkept.core.projects import Switching
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import connect, create, transaction, translated
from everkept.engines.sqlite.project_list import folders_of, keep_switching, switching_of
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.sql import Connection
from everkept.values import Value, replace

_TOKENS = "id, label, secret_hash, created_at"


class _Switched(Value):
    """A project that is off, or was. One that is deleted has no name any more."""

    id: str
    name: str | None
    description: str
    created_at: str
    switching: Switching
    folders: tuple[str, ...]

    @property
    def is_off(self) -> bool:
        """Or was, when it was deleted."""
        return self.switching.off_since is not None

    @property
    def left(self) -> Switching:
        """What is known of one that was deleted ends there."""
        if self.name is not None:
            return self.switching
        ended = self.switching.switched(off=False, at=self.switching.deleted_at or 0)
        return replace(ended, folders=(), deleted_at=None)


def keep_decisions(
    now: Connection, prepared: Path, prefixes: Sequence[str], at: int, *, was_empty: bool
) -> None:
    """Takes them from the catalogue of now into the one that will replace it.

    A folder that `was_empty` and has no token gets those of the backup, with the accounts.
    """
    with translated(prepared), closing(connect(prepared, LIBRARY)) as db, transaction(db):
        _keep_tokens(now, db, was_empty=was_empty)
        for prefix in prefixes:
            notes = project_list.notes(now, prefix)
            db.executemany("INSERT OR IGNORE INTO notes VALUES (?,?)", list(notes.items()))
        for switched in _switched_of(now):
            _keep(db, prepared.parent, switched, at)


def switched_off(prepared: Path) -> list[str]:
    """The names of projects that are, by this catalogue."""
    with translated(prepared), closing(connect(prepared, LIBRARY)) as db:
        return [project.name for project in project_list.projects(db, None) if project.is_off]


def is_to_be_off(now: Connection, before: Path | None, project_id: str, name: str) -> bool:
    """Whether a project that comes back beside others does so switched off.

    That is so where it is off, was off when it was deleted, or one of its name is; else, as the
    catalogue of the backup has it.
    """
    known = project_list.named(now, name)
    if known is not None and known.project.is_off:
        return True
    switching = switching_of(now, project_id)
    if before is not None:
        with translated(before), closing(connect(before, LIBRARY)) as db:
            switching = switching.united(switching_of(db, project_id))
    return switching.off_since is not None


def _keep_tokens(now: Connection, db: Connection, *, was_empty: bool) -> None:
    tokens = now.execute(f"SELECT {_TOKENS} FROM tokens").fetchall()
    if tokens or not was_empty:
        db.execute("DELETE FROM tokens")
        db.executemany(f"INSERT INTO tokens({_TOKENS}) VALUES (?,?,?,?)", tokens)
        # Whose a token is and what that user sees belongs together.
        before = project_list.notes(db, NOTES)
        db.executemany("DELETE FROM notes WHERE key = ?", [(key,) for key in before])
        accounts = project_list.notes(now, NOTES)
        db.executemany("INSERT INTO notes VALUES (?,?)", list(accounts.items()))
        homes = [
            (each.id,)
            for each in project_list.projects(db, None)
            if is_anothers(each.name, before, accounts)
        ]
        db.executemany("DELETE FROM projects WHERE id = ?", homes)


def _switched_of(now: Connection) -> list[_Switched]:
    found: list[_Switched] = []
    for key in project_list.notes(now, project_list.SWITCHED):
        project_id = key.removeprefix(project_list.SWITCHED)
        switching = switching_of(now, project_id)
        row = now.execute(
            "SELECT name, description, created_at FROM projects WHERE id = ?", (project_id,)
        ).get
        name, description, created_at = row or (None, "", "")
        folders = switching.folders if row is None else tuple(folders_of(now, project_id))
        found.append(_Switched(project_id, name, description, created_at, switching, folders))
    return found


def _keep(db: Connection, stage: Path, switched: _Switched, at: int) -> None:
    heirs = _heirs(db, switched)
    is_back = switched.id in heirs
    if not is_back and switched.name is None:
        keep_switching(db, switched.id, switched.switching)
        return
    if not heirs and switched.is_off:
        _make_anew(db, stage, switched)
        heirs, is_back = [switched.id], True
    if is_back:
        before = switching_of(db, switched.id)
        keep_switching(db, switched.id, switched.left.united(before))
    for heir in heirs[:1] if switched.is_off else []:
        rows = [(folder, heir) for folder in switched.folders]
        db.executemany("INSERT OR IGNORE INTO workspaces VALUES (?,?)", rows)
    _keep_silences_elsewhere(db, switched, at, is_back=is_back)
    for heir in heirs if switched.is_off else []:
        keep_switching(db, heir, switching_of(db, heir).switched(off=True, at=at))


def _heirs(db: Connection, switched: _Switched) -> list[str]:
    """The same project, else whichever has its name or its folders: those are off now."""
    rows = db.execute(
        "SELECT id FROM projects WHERE id = ?1 OR name = ?2 ORDER BY id <> ?1",
        (switched.id, switched.name),
    )
    found = [str(project_id) for (project_id,) in rows]
    for folder in switched.folders:
        owner = db.execute("SELECT project FROM workspaces WHERE path = ?", (folder,)).get
        found += [owner] if owner is not None and switched.name is not None else []
    return list(dict.fromkeys(found))


def _keep_silences_elsewhere(
    db: Connection, switched: _Switched, at: int, *, is_back: bool
) -> None:
    """Of folders that another project has then: as of a project that was deleted."""
    own = folders_of(db, switched.id)
    others = [folder for folder in switched.folders if folder not in own]
    if others:
        key = str(uuid4()) if is_back else switched.id
        keep_switching(db, key, switched.left.leaving(others, at))


def _make_anew(db: Connection, stage: Path, switched: _Switched) -> None:
    """Without anything in it: the folders that were off have a project that is."""
    path = f"projects/{switched.id}.db"
    name = str(switched.name)
    make_folder((stage / path).parent)
    facts = {
        "name": name,
        "description": switched.description,
        "created_at": switched.created_at,
    }
    create(stage / path, PROJECT, facts)
    db.execute(
        "INSERT INTO projects(id, name, description, db_path, created_at, updated_at) "
        "VALUES (?1,?2,?3,?4,?5,?5)",
        (switched.id, name, switched.description, path, switched.created_at),
    )
