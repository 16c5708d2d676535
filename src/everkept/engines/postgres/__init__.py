"""PostgreSQL with pgvector: one database that several servers share.

The engine runs SQL in threads, as the SQLite engine does. The asynchronous API of psycopg needs another event loop on
Windows than our subprocesses do. A piece of work is a function of a cursor. It runs in one transaction on one of a few
connections (`database.py`). Reading a result sends its statement together with all earlier ones (`statements.py`).
So a query takes one round trip, and a commit takes two. Concurrent queries for the authors of several
stores are merged into one (`SharedQuery` in `store.py`). Settings apply to the session, or behind a pooler to each
transaction. A query whose connection is lost is repeated. A write is repeated only if none of it was answered.

- All stores share one set of tables, and each row has the number of its store. `bench/layouts.py` compared this
  with one schema per project at 1,000 projects. Schemas took five times the disk and four times as long to dump,
  and a store ran at 0.6 times the speed. Their advantage was search by words. It is gone because the words of
  every record include one that names its store.
- A commit locks the row of its store, reads the records that its steps name, plans with `engines/commit_plan.py`
  and writes. So the log has no gaps, and the plan is what is written. Stores do not wait for each other.
- Each transaction reads the version of the tables in the round trip that begins it. Migrations run under an
  advisory lock that every writer shares. So a program that is too old is refused before it changes anything.
- Vectors are data. Large stores get one HNSW index each, built in the background, so no query visits the vectors of
  another store. Results are the same without the index. During a bulk load, the index is built after the load.
- A walk is one recursive query (`WalkLinks`). The other engines walk hop by hop in `core/fallback_answers.py`, with
  the same result.
- Every engine counts the sources that link to a record in the database (`CountSources`). A walk reads only the
  newest of those links.
- Deleting a large project hides it immediately and removes its rows in the background. If the process dies, the
  next server removes the rest.
- `LISTEN` only wakes a process. The log shows what changed.
"""
