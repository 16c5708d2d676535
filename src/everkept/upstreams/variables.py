"""Variables of our environment inside the values of a server's entry."""

import re
from collections.abc import Callable, Mapping

from everkept.core.upstreams import VARIABLE, Launch, Reach
from everkept.errors import UpstreamUnavailable

SHORTEST_SECRET = 6  # characters; what is shorter is part of many a word
_MASK = "[masked: variable]"

Hide = Callable[[str], str]


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
                hint=f"Set {name} in the environment of Everkept, and start it again.",
                retry_possible=False,
            )
        return environment[name]

    return {key: VARIABLE.sub(value_of, value) for key, value in values.items()}


def hiding(reach: Reach, environment: Mapping[str, str]) -> Hide:
    """What masks in a server's words the values that were filled in for it, and whatever else
    looks like a secret. A variable that tells of a place is none."""
    values = reach.way.env if isinstance(reach.way, Launch) else reach.way.headers
    named = {name for value in values.values() for name in VARIABLE.findall(value)}
    known = {environment[name] for name in named - _PLACES if name in environment}
    # The longest first: another may be part of it.
    secrets = sorted((s for s in known if len(s) >= SHORTEST_SECRET), key=len, reverse=True)

    def hidden(text: str) -> str:
        from everkept.core.secrets import masked

        for secret in secrets:
            text = text.replace(secret, _MASK)
        return masked(text)[0]

    return hidden


_PLACES = frozenset(
    {"APPDATA", "HOME", "LOCALAPPDATA", "LOGNAME", "PATH", "PWD", "TEMP", "TMPDIR", "USER"}
    | {"USERNAME", "USERPROFILE"}
)
