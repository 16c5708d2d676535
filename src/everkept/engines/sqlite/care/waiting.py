"""The texts of a data folder that wait for their vectors."""

from collections.abc import Sequence
from pathlib import Path

from everkept.core.care import Waiting
from everkept.core.questions import CountVectors
from everkept.engines.sqlite.care.copying import META
from everkept.engines.sqlite.care.databases import database_names, owned_files
from everkept.engines.sqlite.care.looking import looked_at
from everkept.engines.sqlite.meaning import vector_counts
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import EverkeptError, StorageFull

_OF_OTHERS = (
    "SELECT count(*) FROM records WHERE embedded IS NOT NULL "
    "AND embedded NOT IN ('', ?) AND deleted_at IS NULL"
)


def texts_that_wait(folder: Path, model: str, kinds: Sequence[str]) -> list[Waiting]:
    known = owned_files(folder) or {}
    found: list[Waiting] = []
    for name in database_names(folder):
        if name == META or Path(name).parts[0] == "archive":
            continue
        try:
            with looked_at(folder / name) as db:
                if int(db.pragma("user_version")) < PROJECT.version:
                    continue  # the next start brings it up to date, and its texts wait then
                waiting = vector_counts(db, CountVectors(model, kinds))[1]
                others = int(db.execute(_OF_OTHERS, (model,)).get)
        except StorageFull:
            raise
        except EverkeptError:
            continue  # the check of databases says what is wrong with it
        title = known[name].title if name in known else name
        found.append(Waiting(title, waiting, others))
    return found
