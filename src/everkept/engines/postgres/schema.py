"""The tables of a library, version by version, and the database that has them."""

from pathlib import Path

from everkept.engines.postgres.catalogue import schema as catalogue
from everkept.engines.postgres.connecting.addresses import Credentials
from everkept.engines.postgres.connecting.database import CONNECT_LIMIT, TIME_LIMIT, Database
from everkept.engines.postgres.connecting.migrating import Layout
from everkept.engines.postgres.records import schema as records
from everkept.engines.postgres.searching import schema as searching
from everkept.values import replace

# A version that was given out stays as it is: what changes is a step behind it.
LAYOUT = Layout(steps=((*catalogue.STATEMENTS, *records.STATEMENTS, *searching.STATEMENTS),))
VERSION = LAYOUT.version


def database(
    url: str,
    schema: str,
    *,
    credentials: Credentials | None = None,
    ca: Path | None = None,
    time_limit: float = TIME_LIMIT,
    connect_limit: float = CONNECT_LIMIT,
    founds: bool = True,
) -> Database:
    """One whose tables are made, or brought up to date, before the first call is answered.

    One that `founds` nothing refuses a schema in which there are none.
    """
    return Database(
        url,
        schema,
        layout=replace(LAYOUT, founds=founds),
        credentials=credentials,
        ca=ca,
        time_limit=time_limit,
        connect_limit=connect_limit,
    )
