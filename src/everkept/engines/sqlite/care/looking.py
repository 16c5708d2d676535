"""Opening a database that may be anything: a project's, damaged, or a file that strayed here."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from everkept.engines.sqlite.connections import translated
from everkept.engines.sqlite.examining import check_kind, in_use
from everkept.engines.sqlite.schema import PROJECT, Schema
from everkept.engines.sqlite.sql import Connection
from everkept.errors import StoreDamaged


@contextmanager
def looked_at(
    path: Path, schema: Schema = PROJECT, *, title: str | None = None
) -> Generator[Connection, None, None]:
    """Raises StoreDamaged for what is no database of ours, and StoreTooNew."""
    named = title or path.name
    try:
        with translated(path, schema, title=title), closing(in_use(path)) as db:
            check_kind(db, path, schema, named)
            yield db
    except apsw.SQLError as error:  # such as a table that is not there
        raise StoreDamaged(
            f"{named} lacks what a {schema.name} database has ({error}).",
            hint=schema.when_damaged,
            path=str(path),
        ) from error
