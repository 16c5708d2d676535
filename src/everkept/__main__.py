"""The program: `everkept`, and `python -m everkept`."""

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than the first answers
if TYPE_CHECKING:
    from everkept.first_answers import ServerStart

# Modules that every server over stdio loads, besides its family and engine.
LOADED = ("everkept.cli.stdio_start", "everkept.transports.stdio", "everkept.app.build")
OWN_OPTIONS = ("-h", "--help", "--version", "--")  # all others are options of a command


def main() -> None:
    """Answer a hook or a client's first questions before the command line is loaded.

    Loading its parser takes longer than answering. Options without a command are those of `serve`.
    """
    if sys.argv[1:2] and sys.argv[1].startswith("-") and sys.argv[1] not in OWN_OPTIONS:
        sys.argv.insert(1, "serve")
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from everkept.hooks.unhandled import end_if_unhandled

        end_if_unhandled(sys.argv[2:])
        from everkept.hooks.entry import main as answer

        answer(sys.argv[2:])
        return
    start = _start() if sys.argv[1:2] == ["serve"] else None
    if start is not None and start.kept is not None:
        from everkept.cli.stdio_start import resume

        if resume(start):
            return
    from everkept.cli.main import main as run

    run(start=start)


def _start() -> "ServerStart | None":
    try:
        from everkept.first_answers import ServerStart
    except ImportError:  # a Python that was built without some parts
        return None
    start = ServerStart.from_arguments(sys.argv[2:], os.environ)
    try:
        start.greet(_load)
    except KeyboardInterrupt:
        sys.exit(130)
    return start


def _load() -> None:
    """Import what every server needs."""
    from importlib import import_module

    for name in LOADED:
        import_module(name)


if __name__ == "__main__":
    main()
