"""SurrealDB behind the same port: in this process, or a server that many share.

`engines/surreal/` speaks to SurrealDB in this process or over its websocket, in the dialects of
version 2 and 3; one text finds out which. The SDK's own client is not used on the wire: it turns a
cut connection into a cancellation, never reconnects, and swallows the errors of all statements but
the first. Each text begins with `USE`, so none depends on a session, and every statement's outcome
is looked at.

- A commit reads what the steps name, plans with `engines/commit_plan.py` (the reference engine's
  semantics as a pure function over a view), and writes all of it in one transaction that begins by
  comparing the store's turn with the one that was read; who was overtaken plans anew.
- Words and vectors stand in tables of their own, beside the records: in version 2 an index on a
  column that is filtered by makes a search by vector wrong. Words are stems prepared in Python, cut
  at blanks, so that both versions index what every other engine does.
- Writes take turns, in a process and among the processes of a machine: SurrealKV of version 2 loses
  one of two transactions that overlap, and says nothing (18 of 60 in a test of four writers).
  Programs on several machines cannot know of each other: the documents say so.
- A folder has one owner, by a lock of ours. `SURREAL_SYNC_DATA` makes a commit wait for the disk.
"""
