"""Where an SSH server is, and how to log in there."""

import re
from pathlib import Path
from urllib.parse import quote

from everkept.core.text import clip_text, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value

DEFAULT_PORT = 22


class SshOptions(Value):
    """What holds for every connection; without a path, what OpenSSH's own client would take."""

    #: The private key to log in with. Default: those of the agent, then those in `~/.ssh`.
    key: Path | None = None
    #: The file with the keys of servers. Default: `~/.ssh/known_hosts` and that of the system.
    known_hosts: Path | None = None
    #: The client's configuration: names for hosts, jumps, keys. Default: `~/.ssh/config`.
    config: Path | None = None
    connect_seconds: float = 20.0
    #: For a single request, not for a whole file.
    answer_seconds: float = 30.0
    #: Between two signs of life on an idle connection; after three without an answer it is lost.
    keepalive_seconds: float = 15.0


_UNUSUAL_CHARACTER = re.compile(r"[^\w.@+:%~-]")


class SshTarget(Value):
    """A user on a server; `port` is None for what the client's configuration says, else 22."""

    user: str
    host: str
    port: int | None = None

    def __post_init__(self) -> None:
        _check_name("user", self.user)
        _check_name("host", self.host)
        if self.port is not None and not 0 < self.port < 65536:
            raise InvalidInput(f"The SSH port {self.port} is not between 1 and 65535.", port=self.port)

    def __str__(self) -> str:
        """As an address has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{quote(self.user, safe='')}@{host}{port}"


def _check_name(kind: str, name: str) -> None:
    if reason := _find_problem(name):
        shown = ascii(clip_text(name))[1:-1]
        raise InvalidInput(
            f'The SSH {kind} "{shown}" {reason}.', hint="An address reads ssh://user@host/path.", **{kind: shown}
        )


def _find_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if name.startswith("-"):
        return "begins with a dash"
    if has_control_characters(name) or any(c.isspace() for c in name):
        return "holds a blank or a control character"
    # A user's own SSH configuration may hand both to a shell, as ProxyCommand does.
    if bad := _UNUSUAL_CHARACTER.search(name):
        return f"holds {bad.group()!a}, which no shell should see"
    return None
