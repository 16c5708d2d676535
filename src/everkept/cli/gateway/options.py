"""What the commands of the gateway have in common: which file is meant."""

from pathlib import Path

import click

from everkept.errors import InvalidInput
from everkept.settings import Settings, gateway_target

gateway_config = click.option("--gateway-config", metavar="FILE", help="The gateway's file.")


def gateway_file(settings: Settings) -> Path:
    """The file that is read; InvalidInput where there is none."""
    if settings.gateway_config is None:
        usual = gateway_target(settings)
        raise InvalidInput(
            "There is no gateway file.",
            hint=f"`everkept gateway init` writes one ({usual}); --gateway-config names another.",
        )
    return settings.gateway_config
