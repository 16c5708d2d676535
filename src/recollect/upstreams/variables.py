"""Variables of our environment inside the values of a server's entry."""

import re
from collections.abc import Mapping

from recollect.errors import UpstreamUnavailable

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(
    values: Mapping[str, str], environment: Mapping[str, str], upstream: str
) -> dict[str, str]:
    """The values with each `${NAME}` replaced. One that is not set is an UpstreamUnavailable: a
    server would take an empty secret for a wrong one."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environment:
            raise UpstreamUnavailable(
                upstream,
                f"needs the variable {name}, which is not set.",
                hint=f"Set {name} in the environment of Recollect, and start it again.",
            )
        return environment[name]

    return {key: _VARIABLE.sub(value_of, value) for key, value in values.items()}
