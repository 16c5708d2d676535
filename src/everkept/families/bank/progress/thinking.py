"""What is kept of a train of thought while it lasts: how far it is, never what it says."""

from collections import OrderedDict

from everkept.values import Value, field

MOST_TRAINS = 200  # of all clients together; the one that rested longest goes first
MOST_BRANCHES = 100


class Train(Value, frozen=False):
    length: int = 0
    branches: dict[str, None] = field(default_factory=dict[str, None])


class Trains:
    """Trains of thought by the session of the client and the name it gave them."""

    def __init__(self, most: int = MOST_TRAINS) -> None:
        self._most = most
        self._trains: OrderedDict[tuple[str, str | None], Train] = OrderedDict()

    def step(self, session: str, name: str | None, branch: str | None) -> Train:
        """One more thought; of the branches the oldest are forgotten when they are many."""
        train = self._trains.setdefault((session, name), Train())
        self._trains.move_to_end((session, name))
        train.length += 1
        if branch is not None:
            train.branches[branch] = None
            if len(train.branches) > MOST_BRANCHES:
                del train.branches[next(iter(train.branches))]
        while len(self._trains) > self._most:
            self._trains.popitem(last=False)
        return train

    def forget(self, session: str, name: str | None) -> int:
        """One train, or all of the session without a name; how many there were."""
        keys = [key for key in self._trains if key[0] == session and name in (None, key[1])]
        for key in keys:
            del self._trains[key]
        return len(keys)
