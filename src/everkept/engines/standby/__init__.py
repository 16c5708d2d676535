"""Operation while the database is unreachable: a journal of writes, and a replica for reads.

`engines/standby/` is a library around another one. `failover.py` knows whether the database is reachable, retries, and
is the only place that decides which side answers a call. While the database is unreachable, reads come from a replica,
a whole `SqliteLibrary` in its own folder. `replica.py` updates it from the change log with `RecordStore.replicate`.
Writes go to `journal.py` (one SQLite file, synchronous FULL), then to the replica, which validates them and answers.

`Batch.key` ensures that each commit happens exactly once. Every commit has a key before the first attempt, and a store
that knows the key returns the existing change. So a commit with an unknown outcome is simply repeated, now or by
`replay.py`. A write that no longer matches the stored data is changed without losing acknowledged data (`rebase.py`),
or rejected so that a person can decide. A context variable (`core/library.py`) marks calls that the replica answered,
so that no family or tool needs to know. `app/resources.py` adds the mark to the answer and explains it once.

A write of an account is replayed only if the database then has the same account with write access (`replay.py`).
Otherwise it is rejected: a server without its database cannot know which accounts were removed.

`exchange/migration.py` uses the same two operations, `replicate` and `CatalogData`. It copies pages of records, links
and log entries unchanged, then compares both sides with a checksum.
"""
