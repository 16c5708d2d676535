"""The note of the last backup: when it was written, and where."""

from contextlib import closing, suppress
from pathlib import Path

from everkept.core.times import parsed
from everkept.engines.sqlite import listing
from everkept.engines.sqlite.care.copying import META
from everkept.engines.sqlite.care.looking import looked_at
from everkept.engines.sqlite.connections import connect, transaction, translated
from everkept.engines.sqlite.schema import LIBRARY
from everkept.errors import EverkeptError

LAST = "backup.last"


def last_backup(folder: Path) -> tuple[Path, int] | None:
    """None where nobody knows."""
    meta = folder / META
    try:
        with looked_at(meta, LIBRARY) as db:
            moment, _, file = (listing.note(db, LAST) or "").partition(" ")
        return (Path(file), parsed(moment)) if file else None
    except (EverkeptError, ValueError):
        return None


def note_backup(folder: Path, file: Path, at: str) -> None:
    """Where nothing can be noted, the backup is as good."""
    meta = folder / META
    with (
        suppress(EverkeptError),
        translated(meta, LIBRARY),
        closing(connect(meta, LIBRARY)) as db,
        transaction(db),
    ):
        db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (LAST, f"{at} {file}"))
