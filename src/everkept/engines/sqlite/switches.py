"""The notes in `_meta.db` that say when projects were switched off."""

import json

from everkept.core.projects import Silence
from everkept.core.switching import Switching
from everkept.engines.sqlite.listing import SWITCHED, note
from everkept.engines.sqlite.sql import Connection
from everkept.values import as_dict


def switch(db: Connection, project_id: str, *, off: bool, at: int) -> bool:
    """False where there is no such project."""
    if not db.execute("SELECT count(*) FROM projects WHERE id = ?", (project_id,)).get:
        return False
    before = switching_of(db, project_id)
    after = before.switched(off=off, at=at)
    if after != before:
        keep_switching(db, project_id, after)
    return True


def note_leaving(db: Connection, project_id: str, at: int) -> None:
    """Before a project is deleted; where that fails then, nothing follows from it."""
    switching = switching_of(db, project_id)
    if switching.spans:
        keep_switching(db, project_id, switching.leaving(folders_of(db, project_id), at))


def silences(db: Connection) -> list[Silence]:
    rows = db.execute(
        "SELECT p.id, n.value FROM notes n LEFT JOIN projects p ON p.id = substr(n.key, ?2) "
        "WHERE substr(n.key, 1, ?2 - 1) = ?1 ORDER BY n.key",
        (SWITCHED, len(SWITCHED) + 1),
    ).fetchall()
    found: list[Silence] = []
    for project_id, value in rows:
        switching = _switching_from(value)
        if project_id is None:
            found += switching.last_silences()
        else:
            found += switching.silences(folders_of(db, project_id))
    return found


def folders_of(db: Connection, project_id: str) -> list[str]:
    rows = db.execute("SELECT path FROM workspaces WHERE project = ? ORDER BY path", (project_id,))
    return [path for (path,) in rows]


def switching_of(db: Connection, project_id: str) -> Switching:
    value = note(db, SWITCHED + project_id)
    return Switching() if value is None else _switching_from(value)


def _switching_from(value: str) -> Switching:
    kept = json.loads(value)
    spans = tuple((since, until) for since, until in kept["spans"])
    return Switching(spans, tuple(kept["folders"]), kept["deleted_at"])


def keep_switching(db: Connection, project_id: str, switching: Switching) -> None:
    value = json.dumps(as_dict(switching), ensure_ascii=False)
    db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (SWITCHED + project_id, value))
