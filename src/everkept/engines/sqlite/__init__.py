"""Default engine: one SQLite file per project, written by many processes.

`engines/sqlite/schema.py` has the tables. What matters:

- Each file has one connection that reads and one that writes, each with its own thread (`database.py`).
  A third one exists while many vectors are read for the first time. Reads never wait for writes, and a canceled
  call cannot leave a connection half used.
- A short query runs in the caller's thread if the connection is idle: handing it over takes half of the time. There it
  waits for no lock. A query that turns out to be long is interrupted after some 100,000 instructions and repeated in
  the connection's thread. A write does the same over stdio, which serves one client, but never folds the log or
  waits for the disk. After 32 calls in a row other tasks get their turn.
- A part of the graph is one query (`ReadSubgraph`). Entities, observations and relations come as plain rows, from
  which the tools build JSON. No records are built.
- A search for a part of a text in 1,000 to 60,000 records finds candidates in memory (`substrings.py`). SQLite then
  checks the candidates.
- A quick busy handler replaces `busy_timeout`. SQLite's own back-off sleeps up to 100 ms and starves beside a process
  that commits in a row. An interactive write waited 6.5 s beside an import; with naps of 0.5 to 2 ms, 0.2 s.
- The word index is contentless. Each commit fills it in the same transaction, with text prepared in Python
  (`language/words.py`). A custom tokenizer would lock every other program out of the file.
- Each project file has a generation number, which each write transaction compares. Archiving sets it before the file
  moves, so no process writes into a moved file. Each move first commits its intent to `_meta.db` and then runs inside
  one write transaction there. The next start finishes or reverses an interrupted move (`project_lifecycle.py`).
- Restoring puts a copy in place, not the archived file itself. A process that still has the old file open would
  otherwise delete the new file's log by name when it closes.
- Each write transaction also reads the schema version. A process older than the database is refused at its next write.
  A database newer than the program is refused when it is opened. Nothing is changed either way.
- A newer program saves a backup of the whole folder before it changes the schema of any file (`upgrade.py`).
- `secure_delete` is always on. A purge also rewrites the index and empties the write-ahead log.
- The catalog can be rebuilt. Each project file contains its own name. If `_meta.db` is missing, the next start creates
  it from the files (`library.py`). The next process that meets an interrupted move settles it, even a running server.
- Vectors are data; the index over them is not. They are float16 blobs with a running number, which an index in memory
  follows (`nearness.py`, `engines/vectors.py`). The index is exact up to 20,000 vectors. Beyond that it has one bit per
  dimension and rescores with the stored floats. The bits are stored too, so that a million are read in a second.
  Vectors that another process stored are found by the next query. `records.embedded` marks records without a vector.
- Any-word queries over many rows are ranked over posting arrays read from FTS5's own index (`search.py`). The bm25
  is the same and takes 1 ms instead of 11 ms (10,000 rows) or 115 ms (100,000). The arrays follow every commit,
  also those of other processes.
- The third column of the word index has 500 characters of each neighbor, that is the turns before and after. Each
  commit keeps it up to date.
- After a purge, a large index is cleaned in steps (`purge.py`), so that no caller waits for it. The purged words are
  gone from the disk when the last step is done.
- `user.db` is a file like a project's, for data that belongs to the user. A promotion spans it and a project: it writes
  the target first under the same id, then the tombstone of the source. Readers use the broader scope. If a crash
  interrupts it, it is finished after the first call to a project is answered (`jobs/maintenance.py`).
- A redaction rewrites a record, its log entries, words and vectors in place, for a secret that should never have been
  stored. It is the only write that changes the past.
"""
