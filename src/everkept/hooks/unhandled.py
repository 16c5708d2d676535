"""Events that none of our hooks answers, and processes whose time is up: how they end.

An assistant may call us for each of them, many times a minute. Even `typing` would double the time.
"""

import os
from _thread import start_new_thread
from time import sleep

INPUT_SECONDS = 3.0  # for the input to end

# Other events of assistants; what is neither here nor handled may be a name that is mistyped.
UNHANDLED_EVENTS = frozenset(
    {
        "Notification",
        "PermissionRequest",
        "PostCompact",
        "PostToolBatch",
        "PreToolUse",
        "Stop",
        "StopFailure",
        "SubagentStart",
        "SubagentStop",
    }
)


def end_if_unhandled(arguments: list[str]) -> None:
    """End the process if the event is one of these, once the assistant has written its input."""
    if not arguments or arguments[0] not in UNHANDLED_EVENTS:
        return
    start_new_thread(_enforce_time_limit, ())
    try:
        while os.read(0, 1 << 16):
            pass
    finally:
        os._exit(0)


def _enforce_time_limit() -> None:
    sleep(INPUT_SECONDS)
    os._exit(0)


def end_after(seconds: float) -> None:
    """With another status than 0 and without a word, whatever it does then.

    Whoever waits here needs no interpreter: a regular expression that takes for ever, or a call
    that never comes back, lets no thread of Python have its turn.
    """
    import faulthandler

    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
