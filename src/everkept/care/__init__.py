"""Care for what is stored: backup and restore, the doctor, audit and purge.

This package knows files and wording; `engines/sqlite/care.py` does the work on databases, with the
values of `core/care_results.py`. A backup is one file with a copy of every database, and what spans
two of them must be whole in it: the write locks of `_meta.db` and `user.db` are held while a read
transaction begins on every file, and then all is copied at leisure from those (the backup API took
0.26 s for 220 MB, `VACUUM INTO` 0.46 s). A restore replaces the content of each file in one
transaction, so that servers which have it open go on with what was restored; generations and change
numbers grow, so nobody takes an old cache for a new state.
"""
