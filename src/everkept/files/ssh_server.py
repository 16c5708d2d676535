"""The address of an SSH server, and how to log in there."""

import re
from pathlib import Path
from urllib.parse import quote

from everkept.core.text import clip_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value

DEFAULT_PORT = 22


class SshOptions(Value):
    """Options of every connection. A path that is None means the default of OpenSSH's client."""

    # Private key to log in with. Default: the agent's keys, then those in `~/.ssh`.
    key: Path | None = None
    # File with the keys of servers. Default: `~/.ssh/known_hosts` and the system's file.
    known_hosts: Path | None = None
    # Configuration of the client: host names, jumps, keys. Default: `~/.ssh/config`.
    config: Path | None = None
    connect_seconds: float = 20.0
    # For a single request, not for a whole file.
    answer_seconds: float = 30.0
    # Between keepalives on an idle connection; after three without an answer it is lost.
    keepalive_seconds: float = 15.0


_UNUSUAL_CHARACTER = re.compile(r"[^\w.@+:%~-]")


class SshTarget(Value):
    """A user on a server. If `port` is None, the client's configuration decides, otherwise 22."""

    user: str
    host: str
    port: int | None = None

    def __post_init__(self) -> None:
        _check_name("user", self.user)
        _check_name("host", self.host)
        if self.port is not None and not 0 < self.port < 65536:
            raise InvalidInput(f"The SSH port is {self.port}; it must be between 1 and 65535.", port=self.port)

    def __str__(self) -> str:
        """Format the target as in an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{quote(self.user, safe='')}@{host}{port}"


def _check_name(kind: str, name: str) -> None:
    if reason := _find_problem(name):
        shown = ascii(clip_text(name))[1:-1]
        raise InvalidInput(f'The SSH {kind} "{shown}" {reason}.', hint="Use ssh://user@host/path.", **{kind: shown})


def _find_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if name.startswith("-"):
        return "begins with a dash"
    if has_control_characters(name) or any(c.isspace() for c in name):
        return "contains whitespace or a control character"
    # A user's SSH configuration may pass both to a shell, for example with ProxyCommand.
    if bad := _UNUSUAL_CHARACTER.search(name):
        return f"contains {bad.group()!a}, which is not safe in a shell"
    return None
