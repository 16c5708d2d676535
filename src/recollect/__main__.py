"""The program: `recollect`, and `python -m recollect`."""

import sys


def main() -> None:
    """A hook is answered without the command line, whose parser takes longer than the answer."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv):
        from recollect.hooks.unhandled import end_if_unhandled

        end_if_unhandled(sys.argv[2:])
        from recollect.hooks.entry import main as answer

        answer(sys.argv[2:])
    else:
        from recollect.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
