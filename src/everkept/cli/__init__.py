"""Command line: `main.py` lists its own commands, `tools.py` turns each tool into one."""
