"""The memory bank: a folder of Markdown files that people and assistants share.

All files are accessed through the port `core/files.py`, so a bank on another machine uses the same code. `banks.py`
finds the bank of a call. `markdown_*.py` are pure functions that keep every byte outside the edited part.
`bank_files.py`, `core_files.py` and `context_budget.py` prepare files for an assistant, `section_*.py` search them, and
`bank_backups.py` copies them. `memory_files.py` serves the folder `memories`, and `anthropic_memory.py` is its tool.
`file_versions.py` keeps the content before each write in the data folder. Each `*_tools.py` declares the tools of one
area, and `toolset.py` combines them. `model.py` words their errors like the public server.

The graph is the project's knowledge graph. `graph/mirror.py` keeps the file `graph/graph.jsonl` in sync with it. It
appends the changes since its cursor. If another program changed the file, it merges both with the last common state.
`section_index.py` indexes the sections of files as derived records (`Batch.derived`). The log notes only that they
changed, and a deleted one leaves no text. `app/bank.py` decides which project a bank belongs to. `jobs/graph_files.py`
updates the graph files in the background after other families changed the graph.
"""
