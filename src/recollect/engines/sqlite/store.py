"""A project's records in one SQLite file."""

from collections.abc import Mapping, Sequence

from recollect.core.ports import Direction, Order, Purged
from recollect.core.records import (
    Batch,
    Change,
    Edit,
    Link,
    Match,
    Record,
    Ref,
    Weights,
    Where,
)
from recollect.core.times import Clock
from recollect.core.words import WordQuery
from recollect.engines.sqlite import commit, purge, queries
from recollect.engines.sqlite.database import Database
from recollect.engines.sqlite.sql import Connection
from recollect.errors import Conflict, NotFound, ProjectArchived, Unavailable

DELETED_GENERATION = 0
FOLD_PATIENCE = 5.0  # seconds a purge waits for readers that hold old pages


class SqliteStore:
    """The port over one file. Every write checks that the file was not put away meanwhile."""

    def __init__(self, database: Database, name: str, generation: int, clock: Clock) -> None:
        self._database = database
        self._name = name
        self._clock = clock
        self.generation = generation

    async def commit(self, batch: Batch) -> Change:
        def work(db: Connection) -> Change:
            self._check_generation(db)
            return commit.apply(db, batch)

        return await self._database.write(work)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        return await self._database.read(
            lambda db: queries.get_records(db, ids, include_deleted=include_deleted)
        )

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await self._database.read(lambda db: queries.scan(db, where, order, after, limit))

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        return await self._database.read(lambda db: queries.match(db, words, where, weights, limit))

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        return await self._database.read(lambda db: queries.containing(db, text, where, limit))

    async def links(
        self, ids: Sequence[str], *, direction: Direction = "both", limit: int | None = None
    ) -> list[Link]:
        return await self._database.read(lambda db: queries.links(db, ids, direction, limit))

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        return await self._database.read(
            lambda db: queries.get_links(db, ids, include_deleted=include_deleted)
        )

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await self._database.read(lambda db: queries.scan_links(db, deleted, containing))

    async def count(self) -> Mapping[str, int]:
        return await self._database.read(queries.count)

    async def changes(
        self, *, after: int = 0, limit: int = 100, newest_first: bool = False
    ) -> list[Change]:
        return await self._database.read(
            lambda db: queries.changes(db, after, limit, newest_first=newest_first)
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await self._database.read(lambda db: queries.history(db, refs, after))

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        def work(db: Connection) -> tuple[int, int]:
            self._check_generation(db)
            return purge.remove(db, refs, self._clock())

        records, links = await self._database.write(work)
        try:
            complete = await self._database.fold(FOLD_PATIENCE)
        except Unavailable:
            complete = False  # what was removed stays removed
        return Purged(records, links, complete=complete)

    async def revision(self) -> int:
        # SQLite's own data_version would begin anew when the file is closed and opened again.
        return await self._database.read(commit.newest_change)

    async def check(self) -> list[str]:
        return await self._database.read(_findings)

    def _check_generation(self, db: Connection) -> None:
        found = generation_of(db)
        if found == self.generation:
            return
        if found == DELETED_GENERATION:
            raise NotFound("project", self._name, hint="It was deleted meanwhile.")
        if found < 0:
            raise ProjectArchived(self._name)
        raise Conflict(
            f'Project "{self._name}" was archived and restored meanwhile.', hint="Call again."
        )


def generation_of(db: Connection) -> int:
    return int(db.execute("SELECT value FROM meta WHERE key = 'generation'").get)


def _findings(db: Connection) -> list[str]:
    # The check itself does not notice that another connection has merged the index since this one
    # last read it, and would call the index damaged; a query does notice.
    db.execute("SELECT 1 FROM words WHERE words MATCH 'x' LIMIT 1").fetchall()
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    found += [f"dangling reference in {row[0]}" for row in db.execute("PRAGMA foreign_key_check")]
    unindexed = db.execute(
        "SELECT count(*) FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
        "WHERE r.deleted_at IS NULL AND d.id IS NULL"
    ).get
    stale = db.execute(
        "SELECT count(*) FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
        "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL"
    ).get
    if unindexed:
        found.append(f"{unindexed} records are not in the word index")
    if stale:
        found.append(f"{stale} entries of the word index have no record")
    return found
