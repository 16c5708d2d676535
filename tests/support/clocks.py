"""A clock that only a test moves."""


class Clock:
    """Seconds; a test sets `now`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
