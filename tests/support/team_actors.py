"""A newer program than ours: one that has changed the tables of PostgreSQL once more."""

import sys

from everkept.cli.main import main
from everkept.engines.postgres import schema
from everkept.engines.postgres.schema import Layout

# What an older program would leave as it is, because it does not know it.
NEWER = Layout((*schema.LAYOUT.steps, ("ALTER TABLE records ADD COLUMN mood text DEFAULT 'calm'",)))


def run_newer(*arguments: str) -> None:
    """Does what the command line says, as a version of the program does that is yet to come."""
    schema.LAYOUT = NEWER
    sys.argv = ["everkept", *arguments]
    main()
