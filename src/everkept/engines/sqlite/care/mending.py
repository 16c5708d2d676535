"""Putting right what is derived, or what two files say differently; records are never touched."""

from contextlib import closing
from pathlib import Path

from everkept.core.times import Clock
from everkept.engines.sqlite.care.copying import META, Kept
from everkept.engines.sqlite.connections import connect, transaction, translated
from everkept.engines.sqlite.founding import list_files
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.store import DELETED_GENERATION, generation_of
from everkept.engines.sqlite.word_index import index

ROWS = 1_000  # that one transaction indexes: nobody else waits long

_UNINDEXED = (
    "SELECT r.key FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
    "WHERE r.deleted_at IS NULL AND d.id IS NULL LIMIT ?"
)
_STALE = (
    "SELECT d.id FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
    "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL LIMIT ?"
)


def mend_word_index(path: Path, *, anew: bool = False) -> int:
    """Brings the word index in step with the records; says how many entries that took.

    `anew` begins with an empty one. What cuts it short leaves records that are not indexed, which
    the next time goes on with.
    """
    done = 0
    with translated(path), closing(connect(path, PROJECT)) as db:
        if anew:
            with transaction(db):
                db.execute("INSERT INTO words(words) VALUES ('delete-all')")
        for statement in (_STALE, _UNINDEXED):
            while True:
                with transaction(db):
                    keys = [int(key) for (key,) in db.execute(statement, (ROWS,))]
                    index(db, keys)
                done += len(keys)
                if len(keys) < ROWS:
                    break
    return done


def mend_generation(folder: Path, kept: Kept) -> None:
    """Lets the catalogue and a project's file say the same, so that it can be written again."""
    path = folder / kept.path
    with (
        translated(folder / META, LIBRARY),
        closing(connect(folder / META, LIBRARY)) as meta,
        transaction(meta),
        translated(path, title=kept.title),
        closing(connect(path, PROJECT, title=kept.title)) as db,
        transaction(db),
    ):
        generation = max(abs(generation_of(db)), kept.generation) + 1
        signed = -generation if kept.status == "archived" else generation
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (signed,))
        meta.execute("UPDATE projects SET generation = ? WHERE id = ?", (generation, kept.id))


def unfreeze(path: Path) -> None:
    """Lets a store that belongs to no project be written again."""
    with translated(path), closing(connect(path, PROJECT)) as db, transaction(db):
        generation = max(abs(generation_of(db)), 1) + 1
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))


async def adopt(folder: Path, clock: Clock) -> None:
    """Lists the files of projects that the catalogue does not name."""
    list_files(folder, folder / META, clock)
    await settle_moves(folder)


async def relocate(folder: Path, kept: Kept) -> None:
    """Looks where a project's file is, as after a move that was cut short."""
    with translated(folder / META, LIBRARY), closing(connect(folder / META, LIBRARY)) as meta:
        meta.execute("UPDATE projects SET transition = 'archiving' WHERE id = ?", (kept.id,))
    await settle_moves(folder)


async def settle_moves(folder: Path) -> None:
    """Finishes or takes back moves that a crash interrupted."""
    library = SqliteLibrary(folder)
    try:
        await library.projects()
    finally:
        await library.close()


def is_deleted(generation: int) -> bool:
    return generation == DELETED_GENERATION
