"""The command line: `main.py` lists its own commands, `tools.py` makes one of every tool."""
