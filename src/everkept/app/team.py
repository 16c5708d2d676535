"""Who else has to do with this memory: accounts, and servers that searches may ask."""

from pathlib import Path

from everkept.app.access_log import FOLDER
from everkept.app.accounts.accounts import Accounts
from everkept.app.peering.roster import Roster
from everkept.errors import EverkeptError
from everkept.values import Value


class Team(Value):
    """How many there are of each, and where it is written who read what."""

    users: int = 0  # people with an account
    servers: int = 0  # other servers with one: those that may ask here
    peers: int = 0  # servers that may be asked from here
    problem: str | None = None  # with the list of those
    access_log: str | None = None  # the folder; None where no server has written there yet
    access_log_bytes: int = 0


async def team(accounts: Accounts, folder: Path) -> Team | None:
    """None where it is one person's, and nobody else is known."""
    users = await accounts.users()
    log = folder / FOLDER
    size = sum(each.stat().st_size for each in log.glob("*.jsonl"))
    servers = sum(user.is_peer for user in users)
    peers, problem = _peers(folder)
    if not (users or peers or problem or size):
        return None
    people = len(users) - servers
    return Team(people, servers, peers, problem, str(log) if size else None, size)


def _peers(folder: Path) -> tuple[int, str | None]:
    try:
        return len(Roster(folder).listed().peers), None
    except EverkeptError as error:
        return 0, error.message
