"""The default engine: one SQLite file per project, written by many processes.

`engines/sqlite/schema.py` has the tables. What matters:

- Two connections per file, one that reads and one that writes, each with a thread of its own
  (`database.py`); a third while many vectors are read for the first time. Reads never wait for
  writes, and a cancelled call cannot leave a connection half used.
- A short question takes no way to that thread if it is idle: the way is half of the time. The
  question waits for no lock there, and one that turns out to be long is interrupted after some
  100,000 instructions and asked again in the thread. A write does the same over stdio, where one
  client is served, but never folds the log or waits for the disk. After 32 in a row others get
  their turn.
- A part of the graph is one question (`ReadSubgraph`): entities, observations and relations come as
  plain rows, of which the tools make JSON. No record is made of them.
- A search for a part of a text in 1,000 to 60,000 records finds candidates in memory
  (`substrings.py`), which SQLite then looks at.
- A quick busy handler instead of `busy_timeout`: SQLite's own back-off sleeps up to 100 ms and
  starves beside a process that commits in a row (an interactive write waited 6.5 s beside an
  import; with naps of 0.5 to 2 ms, 0.2 s).
- A contentless word index filled by the commit with text prepared in Python (`language/words.py`),
  in the same transaction. A tokenizer of our own would lock every other program out of the file.
- A generation number in each project file, compared inside each write transaction. Archiving sets
  it before the file moves, so nobody writes into a moved file. Each move commits its intent to
  `_meta.db` first and runs inside one write transaction there; the next start finishes or takes
  back what a crash interrupted (`project_lifecycle.py`). Restoring puts a copy back, not the file
  itself: a window that still had the old file open would delete the new one's log by name when it
  closes.
- The schema version is read inside each write transaction too: a process older than the database is
  refused at its next write, a database newer than the program at opening, and nothing is touched
  either way.
- `secure_delete` from the first day, and a purge that also rewrites the index and empties the
  write-ahead log.
- The register can be rebuilt. Each project file knows its own name; when `_meta.db` is missing, the
  next start makes it anew from the files (`library.py`). A move that a crash interrupted is settled
  by whoever meets it next, a living server included.

- Vectors are data, the index is not. They are float16 blobs with a running number that an index in
  memory follows (`nearness.py`, `engines/vectors.py`): exact up to 20,000, then a bit a dimension
  (stored beside the vector, so that a million are read in a second), rescored with the stored
  floats. What another process stored is there at the next question. `records.embedded` is the queue
  of what waits for its vector.
- Any-word queries over many rows are ranked over posting arrays read from FTS5's own index
  (`search.py`): the same bm25, 1 ms where FTS5 takes 11 (10,000 rows) or 115 (100,000). The arrays
  follow commits, whoever makes them.
- What is said before and after stands in a third column of the word index, 500 characters of each
  neighbour, and is kept in step by the commit.
- A large index is cleansed in steps after a purge (`purge.py`), so that nobody waits for it; the
  words of what was purged are gone from the disk when the last step is done.
- `user.db` is a file like a project's, for what belongs to the user. Whatever spans it and a
  project (a promotion) writes the target first under the same id, then the source's tombstone;
  readers take the broader one. What a crash left is finished once the first call to a project is
  answered (`jobs/maintenance.py`).
- A redaction rewrites a record, its log entries, words and vectors in place, for a secret that
  should never have been stored; it is the one write that changes the past.
"""
