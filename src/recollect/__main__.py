"""`python -m recollect` is the command line."""

from recollect.cli.main import main

main()
