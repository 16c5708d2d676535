"""`everkept hook`: what assistants call at certain moments; here it only stands in the help."""

from typing import NoReturn

import click

from everkept.cli.options import common


@click.command()
@common
@click.argument("event", required=False)
@click.option("--path", metavar="PATH", help="Working folder. Default: the one the event names.")
@click.option("--worker", is_flag=True, hidden=True)
def hook(event: str | None, *, worker: bool, as_json: bool, **flags: str | None) -> NoReturn:
    """Answer an EVENT of an assistant: SessionStart, UserPromptSubmit, PostToolUse,
    PostToolUseFailure, PreCompact or SessionEnd.

    Assistants call it, not people: `everkept setup` tells them to. It reads the event as JSON
    from standard input, prints what the assistant should know as JSON, if anything, and always
    ends with status 0. What went wrong is in `hooks/faults.log` in the data folder.
    """
    from everkept.hooks.entry import main

    given = {name: value for name, value in flags.items() if value is not None}
    main(
        [
            *([event] if event else []),
            *(f"--{name.replace('_', '-')}={value}" for name, value in given.items()),
            *(["--worker"] if worker else []),
        ]
    )
