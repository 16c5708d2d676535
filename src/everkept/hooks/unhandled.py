"""Fast exit for events that no hook handles, and the last resort for processes that hang.

An assistant may run the command for each such event, many times a minute. Even importing `typing` would double the
time.
"""

import os
from _thread import start_new_thread
from time import sleep

INPUT_SECONDS = 3.0  # for the assistant to finish its input

# Other events of assistants. A name that is neither here nor handled may be a typo.
UNHANDLED_EVENTS = {
    *("Notification", "PermissionRequest", "PostCompact", "PostToolBatch", "PreToolUse"),
    *("Stop", "StopFailure", "SubagentStart", "SubagentStop"),
}


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
    """End the process after this time with a nonzero status and no output, whatever it does then.

    This needs no interpreter: an endless regular expression or a blocking call lets no Python thread run.
    """
    import faulthandler

    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
