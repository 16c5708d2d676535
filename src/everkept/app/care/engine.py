"""Who cares for the files of an installation."""

from shlex import quote
from typing import TYPE_CHECKING

from everkept.errors import Refused
from everkept.settings import Settings

if TYPE_CHECKING:  # only SQLite has files to care for
    from everkept.engines.sqlite.care.care import SqliteCare


def care_of(settings: Settings) -> "SqliteCare":
    """Raises Refused where the engine keeps no files."""
    if settings.deployment_mode == "embedded-memory":
        raise Refused(
            "Everything is kept in memory here: there is no file to copy or to bring back.",
            hint="The setting deployment_mode says so.",
        )
    if settings.engine == "postgres":
        raise Refused(
            "Everything is kept in PostgreSQL here: its own programs copy it and bring it back.",
            hint=f"`{dump_command(settings)}` writes all of it into a file that `pg_restore` "
            "takes, while servers go on writing.",
        )
    if settings.engine != "sqlite":
        raise Refused(
            f"Everything is kept in {settings.engine} here: it has copies of its own.",
            hint="`everkept export` writes all of it into a file that `everkept import` takes.",
        )
    from everkept.engines.sqlite.care.care import SqliteCare

    return SqliteCare(settings.data_dir)


def dump_command(settings: Settings) -> str:
    """What copies a schema of PostgreSQL: one moment of it, with all stores."""
    schema = settings.namespace
    is_plain = schema.islower() and schema.isidentifier()
    chosen = [
        f"--schema={schema}" if is_plain else f'--schema="{schema}"',
        "--format=custom",
        f"--file={schema}.dump",
        f"--username={settings.database_user}",
        settings.database_url or "",
    ]
    return " ".join(["pg_dump", *map(quote, chosen)])
