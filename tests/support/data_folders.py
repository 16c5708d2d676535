"""All that a data folder holds, as values that can be compared."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from everkept.care.backup import RestoreOutcome, WrittenBackup, back_up, restore
from everkept.core.ports import RecordStore, RecordVector
from everkept.core.records import RecordFilter, Ref
from everkept.core.times import read_clock
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.database_checks import LAST_BACKUP_KEY
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Unavailable
from records import batch, entity, link, memory, note

MODEL = "test"
EVERYTHING = RecordFilter(deleted=None)


def off_folders(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


def backed_up(folder: Path, file: Path, **more: Any) -> WrittenBackup:
    return back_up(SqliteCare(folder), file, read_clock, off_folders, **more)


def restored(folder: Path, file: Path, **more: Any) -> RestoreOutcome:
    care = SqliteCare(folder)
    outcome = restore(care, file, read_clock, off_folders, lambda _manifest, _safety: True, **more)
    assert outcome is not None
    return outcome


def cut_short(folder: Path, file: Path, safety: Path) -> Unavailable:
    """Restores the first database and is interrupted; what the one who waited is told."""
    done: list[int] = []

    def interrupt(step: int, _total: int) -> None:
        done.append(step)
        if len(done) > 1 and step == 1:  # the safety copy is made, and one database put back
            raise KeyboardInterrupt

    def ask(*_shown: object) -> bool:
        return True

    try:
        care = SqliteCare(folder)
        restore(care, file, read_clock, interrupt, ask, replace=True, safety=safety)
    except Unavailable as told:
        return told
    raise AssertionError


async def fill(library: SqliteLibrary, project: str) -> None:
    """One of each thing that can be stored."""
    await library.create(project, f"about {project}")
    found, store = await library.open(project)
    await put_all(store, project)
    await put_all(await library.open_user_store(), f"user {project}")
    await put_all(await library.open_history_store(), f"history {project}")
    await library.link_workspace(f"/work/{project}", found)
    await library.set_note(f"note {project}", "value")


async def put_all(store: RecordStore, name: str) -> None:
    one, two = f"{name} one", f"{name} two"
    text = f"{name} is remembered"
    await store.commit(
        batch(
            entity(one),
            entity(two),
            note(one, f"an observation of {name}"),
            link(one, "knows", two),
            memory(text, tags=("red", name), session="s", position=1),
        )
    )
    await store.put_vectors(MODEL, [vector_of(text, 1)])
    await store.note_accesses({text: 3}, 1_000)


def vector_of(record_id: str, version: int) -> RecordVector:
    import numpy as np

    generator = np.random.default_rng(sum(record_id.encode()))
    vector = generator.standard_normal(8).astype(np.float32)
    return RecordVector(record_id, version, (vector / np.linalg.norm(vector)).astype(np.float32))


def filled(folder: Path, *projects: str, archived: tuple[str, ...] = ()) -> None:
    async def run() -> None:
        library = SqliteLibrary(folder)
        for project in projects:
            await fill(library, project)
        for project in archived:
            await library.archive(project)
        await library.close()

    asyncio.run(run())


def everything(folder: Path) -> dict[str, Any]:
    """Each project by name, the stores of the user, and what `_meta.db` has of them."""

    async def run() -> dict[str, Any]:
        library = SqliteLibrary(folder)
        projects = await library.list_projects()
        stores: dict[str, Any]
        found: dict[str, Any] = {
            "projects": {(p.id, p.name, p.description, p.created_at) for p in projects},
            "archived": sorted(p.name for p in projects if p.status == "archived"),
            # But for the note of the last backup, which is written after it.
            "notes": {k: v for k, v in (await library.list_notes("")).items() if k != LAST_BACKUP_KEY},
            "tokens": await library.list_tokens(),
            "workspaces": {},
            "stores": (stores := {}),
        }
        for name in found["archived"]:
            await library.restore(name)
        for project in projects:
            found["workspaces"][project.name] = await library.list_workspaces(project)
            stores[project.name] = await read_content((await library.open(project.name))[1])
        stores["@user"] = await read_content(await library.open_user_store())
        stores["@history"] = await read_content(await library.open_history_store())
        for name in found["archived"]:
            await library.archive(name)
        await library.close()
        return found

    return asyncio.run(run())


async def read_content(store: RecordStore) -> dict[str, Any]:
    records = await store.scan(EVERYTHING)
    ids = [record.id for record in records]
    changes = await store.read_changes(limit=1_000_000)
    vectors = await store.get_vectors(MODEL, ids)
    return {
        "records": {record.id: record for record in records},
        "links": {link.id: link for link in await store.scan_links(deleted=None)},
        "changes": {change.seq: change for change in changes},
        "edits": await store.read_history([Ref("record", each) for each in ids]),
        "vectors": {key: vector.tobytes() for key, vector in vectors.items()},
        "accesses": dict(await store.get_accesses(ids)),
        "faults": await store.find_faults(),
    }


def statement(path: Path, sql: str) -> Any:
    connection: Any
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(sql).fetchall()


def make_older(folder: Path) -> None:
    """Leave the folder as the version before did: projects without checksums, and a catalog without usage."""
    for path in folder.rglob("*.db"):
        if path.name == "_meta.db":
            statement(path, "DROP TABLE usage; PRAGMA user_version = 2; PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            drops = "".join(f"ALTER TABLE {each} DROP COLUMN checksum;" for each in ("records", "links"))
            statement(path, f"{drops} PRAGMA user_version = 4; PRAGMA wal_checkpoint(TRUNCATE)")


def read_databases(folder: Path) -> dict[str, bytes]:
    """The bytes of all databases and of what their logs hold, by name."""
    files = [*folder.rglob("*.db"), *(path for path in folder.rglob("*.db-wal") if path.stat().st_size)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def holders(folder: Path, text: str) -> list[str]:
    """The names of the files that contain the text, in any case."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.lower().encode() in path.read_bytes().lower()]
