"""The memory bank: a folder of markdown files that people and assistants share.

`families/bank` keeps to that port, so a bank on another machine is the same code. `banks.py` says
which bank a call means; below it are `markdown_*.py` (pure), `bank_files.py`, `core_files.py` and
`context_budget.py` (files for an assistant), `graph/`, `section_*.py` (search) and
`bank_backups.py`; each `*_tools.py` declares the tools of one of these, `toolset.py` puts them
together and `model.py` gives their errors the words that clients of the public server know. Edits
of markdown are pure functions that leave every byte alone that they do not mean. The graph is the
graph of the other families; `graph/mirror.py` keeps `graph/graph.jsonl` beside the files in step
with it: it appends what the change log says since its cursor, and where somebody else touched the
file, joins both against what it left there last. `section_index.py` indexes the sections of files
as records that are `derived` (`Batch.derived`): the log keeps that they changed and not what they
were, and a deleted one leaves no text. `app/bank.py` says which project a bank belongs to, and
`jobs/graph_files.py` brings the files of a graph up to date in the background when another family
changed it.
"""
