"""Tools of a gateway with the name of one that they are served beside."""

from collections.abc import Collection
from pathlib import Path

from everkept.app.gateway.file import clashing
from everkept.families.gateway.model import GatewayConfig, Problem


def refuse_clashes(path: Path, config: GatewayConfig, taken: Collection[str]) -> None:
    """Raises InvalidInput for the first of them."""
    for tool in config.tools:
        if tool.name in taken:
            message = f'Everkept itself has a tool "{tool.name}".'
            fix = "Give this one another name, or serve it with `--toolsets gateway` alone."
            raise clashing(path, Problem(tool.line, message, fix))
