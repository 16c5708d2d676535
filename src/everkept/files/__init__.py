"""Folders of files, on this machine's disk and over SSH, behind one port.

Files are authoritative; records are derived from them. `core/files.py` is the port to a folder, with two adapters.
`local.py` and `local_disk.py` use this disk; they walk by directory handles and follow no link out of the folder.
`ssh_*.py` use SFTP. Both must pass one contract suite and one state machine, with processes that die between steps.

A write is a temporary file, flushed and renamed. Files that are written together are all flushed before the first
rename.

The lock (`lease_lock.py`) is a chain of exclusively created files with owner and lease. A process that takes over from
a dead holder extends the chain and removes none of it, so two processes cannot both succeed. The module docstring has
the reasoning, and a test drives contenders through every interleaving.

An edit (`run_locked`) is one call into a thread: lock, read, edit, write, unlock. So are the reads of one result
(`run_all`). The thread runs the same coroutines without an event loop (`core/runtime.py`), so each rule is written
once.
"""
