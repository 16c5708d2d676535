"""Memory that goes on while its database is away: a journal of writes, and a copy to read.

`engines/standby/` is a library around another one. `failover.py` knows whether that can be reached,
tries again, and is the one place that decides which side answers a call. What is read while it is
away comes from a replica, a whole `SqliteLibrary` in a folder of its own, which `replica.py` brings
up to date by the change log and `RecordStore.replicate`. What is written goes into `journal.py`
(one SQLite file, synchronous FULL), then into the replica, which validates it and gives the answer.

Exactly once rests on `Batch.key`: every commit has one before it is first tried, and a store that
knows the key gives the change that it became. So a commit whose outcome is unknown is simply made
again, now or by `replay.py`. What does not fit any more is made to fit without losing what was
acknowledged (`rebase.py`), else set aside for a person. A call that was answered by the replica is
marked through a context variable (`core/library.py`), so no family and no tool knows of it;
`app/resources.py` puts the mark into the answer and says it in words once.

What an account has written meanwhile is made only where the database says then that it is still the
same account and may still write there (`replay.py`), else set aside: a server that is cut off
cannot know who was removed.

The same two things, `replicate` and `CatalogData`, make `exchange/migration.py`: pages of records,
links and log entries as they are, and then a comparison of both sides with a checksum.
"""
