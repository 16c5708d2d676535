"""Care for stored data: backup and restore, doctor, audit and purge.

This package has the rules and the wording. `engines/sqlite/care.py` does the work on databases, with the values of
`core/care_results.py`; `archive.py` beside it writes and reads the file of a backup. A backup is one file with a copy
of every database, and must be consistent across them. The write locks of `_meta.db` and `user.db` are held while a read
transaction begins on every file. Everything is then copied from those transactions. A restore replaces the content of
each file in one transaction, so servers that have it open continue with the restored data. Generations and change
numbers grow, so an old cache never passes for the new state.
"""
