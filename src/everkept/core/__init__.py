"""The vocabulary of the product: stored things, ports and text rules. No I/O but the disk.

A store has three methods to define: `ask(question)`, `commit(batch)` and `maintain(upkeep)`
(`core/store.py`). Each question is a small frozen value with the type of its answer, so the type
checker knows what `store.ask(ScanRecords(where))` returns. `store.scan(where)` and the like are
shorter spellings, defined once on the port. An engine has a table from the type of a question to
the function that answers it. A wrapper (`standby`, `accounts`, the filter of folders) defines the
three methods and passes on what it does not look at. A library is the same with nine methods
(`core/library.py`).

A new question needs its type, its shorter spelling, and an entry in the table of each engine.
`tests/core/test_store.py` fails while a table lacks one.

A `Record` (kind, name, type, text, facets, parent), a `RecordLink` (source, verb, target), and a
`Change`: one committed transaction in an append-only log, with an `Edit` per thing it touched and
the old values of what it altered. An entity is a record, an observation a child record of it, a
relation a link; a memory is a record with scope, session, author, importance, tags and time, and
its links lead to the entities it is about. Vectors and access counts stand beside records: they are
derived or counted, no change, and no part of an undo.

The engine keeps structure, because only it can under concurrency: among the live children of one
parent, `(kind, name_key, variant)` is unique; a link's ends are live; deleting a record takes its
children and links with it; a parent is as new as its newest child. A batch that does not fit is a
`Conflict` and changes nothing. Families read, plan a batch and commit; on a `Conflict` they read
and plan again (`core/commits.py`). Where a plan rests on more than it touches, as an undo does, the
batch carries the revision it was made against (`Batch.revision`). So a family needs no lock and no
SQL, and every engine can offer the same.

The change log serves the audit trail (`everkept log`), undo (`core/commits.py`: the steps that take
a change back, or the reason why not), and subscriptions, which watch its newest number, whoever
wrote it.
"""
