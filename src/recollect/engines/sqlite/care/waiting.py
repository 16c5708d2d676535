"""The texts of a data folder that wait for their vectors."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from recollect.core.care import Waiting
from recollect.engines.sqlite.care.copying import META
from recollect.engines.sqlite.care.databases import database_names, titles
from recollect.engines.sqlite.connections import translated
from recollect.engines.sqlite.examining import in_use
from recollect.engines.sqlite.meaning import vector_counts
from recollect.engines.sqlite.schema import PROJECT
from recollect.errors import RecollectError

_OF_OTHERS = (
    "SELECT count(*) FROM records WHERE embedded IS NOT NULL "
    "AND embedded NOT IN ('', ?) AND deleted_at IS NULL"
)


def texts_that_wait(folder: Path, model: str, kinds: Sequence[str]) -> list[Waiting]:
    known = titles(folder)
    found: list[Waiting] = []
    for name in database_names(folder):
        if name == META or Path(name).parts[0] == "archive":
            continue
        try:
            with translated(folder / name), closing(in_use(folder / name)) as db:
                if int(db.pragma("user_version")) < PROJECT.version:
                    continue  # the next start brings it up to date, and its texts wait then
                waiting = vector_counts(db, model, kinds)[1]
                others = int(db.execute(_OF_OTHERS, (model,)).get)
        except RecollectError:
            continue  # the check of databases says what is wrong with it
        found.append(Waiting(known.get(name, name), waiting, others))
    return found
