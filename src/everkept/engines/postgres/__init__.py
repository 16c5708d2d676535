"""PostgreSQL with pgvector: one database that many servers share.

`engines/postgres/` is SQL in threads, as SQLite's is: psycopg's asynchronous half needs another
event loop on Windows than our subprocesses do. A piece of work is a function of a cursor, run in
one transaction on one of a few connections (`database.py`). Statements go out when an answer is
looked at, with all that were asked before (`statements.py`): a question takes one round trip, a
commit two. The authors of several stores, asked for at the same moment, are one question
(`SharedQuery` in `store.py`). Settings belong to the session; behind a pooler, to each transaction.
A question whose connection is lost is asked again; a write is repeated only if nothing of it was
answered.

- One set of tables for all stores, each row with the number of its store. A schema for each project
  was measured against it at 1,000 projects (`bench/layouts.py`): five times the disk, four times
  the time of a dump, 0.6 times the speed of a store. What spoke for it, searches by words, does not
  once every record's words hold one that stands for its store.
- A commit locks its store's row, reads what its steps name, plans with `engines/commit_plan.py` and
  writes: so the log has no gaps, and what is planned is what is written. Stores do not wait for
  each other.
- The version of the tables is read at the beginning of each transaction, in the same round trip
  that begins it, and migrations run under an advisory lock that every writer shares: a program that
  is too old is refused before it has done anything.
- Vectors are data, and HNSW indexes are made beside the work for stores that are large, one each,
  so that no other store's vectors are in the way; the answer is the same without. While many are
  loaded at once an index waits until they are there.
- A walk is one recursive query (`WalkLinks`). Elsewhere `core/fallback_answers.py` goes from hop to
  hop, with the same answer.
- What links to a record is counted where it is stored (`CountSources`), on every engine: a walk
  reads only the newest of it.
- A large project is out of sight at once, and its rows go behind its back: whoever dies in between
  leaves them to the next server.
- `LISTEN` is a wake-up and nothing more: what has changed is found by the log.
"""
