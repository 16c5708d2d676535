"""The end of a process whose time is up, also where nothing of Python runs any more."""

import faulthandler
import os


def end_after(seconds: float) -> None:
    """With another status than 0 and without a word, whatever it does then.

    Whoever waits here needs no interpreter: a regular expression that takes for ever, or a call
    that never comes back, lets no thread of Python have its turn.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
