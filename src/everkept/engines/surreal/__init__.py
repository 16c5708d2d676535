"""SurrealDB behind the same port: embedded in this process, or as a server that several programs share.

The engine runs SurrealDB in this process or connects to its websocket. It supports the dialects of versions 2 and 3 and
detects the version with one query. It does not use the client of the SDK on the wire. That client turns a lost
connection into a cancellation and never reconnects. It also reports only the error of the first statement. Each text
begins with `USE`, so none depends on a session. The engine checks the result of every statement.

- A commit reads the records that its steps name and plans with `engines/commit_plan.py`. It writes everything in one
  transaction, which first compares the store's turn with the one that was read. If another write came in between,
  the commit plans again.
- Words and vectors have separate tables. In version 2, an index on a filtered column makes a vector search wrong.
  Words are stems prepared in Python and separated by spaces, so both versions index the same words as the other
  engines.
- Writes take turns within a process and among the processes of a machine. SurrealKV of version 2 silently loses one of
  two overlapping transactions (18 of 60 in a test of four writers). Programs on several machines cannot coordinate, as
  the documentation says.
- A folder has one owner, protected by our lock. `SURREAL_SYNC_DATA` makes a commit wait for the disk.
"""
