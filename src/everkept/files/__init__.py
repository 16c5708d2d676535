"""Folders of files, on this machine's disk and over SSH, behind one port.

Files are the truth, records follow. `core/files.py` is the port to a folder, with two adapters in
`files/`: this disk (`local.py`, `disk.py`, which walks by directory handles and follows no link
out) and SFTP (`ssh*.py`). Both are held to one contract suite and one state machine, with processes
that die between steps. A write is a temporary file, flushed and renamed; files that are written
together are all flushed before the first rename. The lock (`lease_lock.py`) is a chain of
exclusively created files with owner and lease; whoever takes over from a dead holder adds to the
chain and removes nothing of it, so that two who do so at once cannot both win. Its docstring has
the reasoning, and a test drives contenders through every interleaving. An edit (`run_locked`) is
one call into a thread: lock, read, edit, write, unlock. So are the reads of one answer (`run_all`).
The coroutines are those of the event loop, driven without one there (`core/runtime.py`), so each
rule is written once.
"""
