"""`everkept gateway`: the group of its commands."""

from typing import Any

import click

from everkept.cli.gateway.call import call
from everkept.cli.gateway.check import check
from everkept.cli.gateway.init import init
from everkept.cli.options import common
from everkept.cli.running import print_json


@click.group()
def gateway() -> None:
    """Stable names for the tools of other MCP servers, as one file says."""


@gateway.command()
@common
def schema(**_flags: Any) -> None:
    """Print the JSON Schema of the gateway's file."""
    from everkept.families.gateway.file.file_schema import file_schema

    print_json(file_schema())


gateway.add_command(init)
gateway.add_command(check)
gateway.add_command(call)
