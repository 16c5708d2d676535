"""The vocabulary of the product: stored things, ports and rules for text. The only I/O is the disk.

A store defines three methods: `ask(question)`, `commit(batch)` and `maintain(upkeep)` (`core/store.py`). Each question
is a small frozen value with the type of its answer, so the type checker knows what `store.ask(ScanRecords(where))`
returns. Shorter spellings such as `store.scan(where)` are defined once on the port. An engine has a table from the type
of a question to the function that answers it. A wrapper (`standby`, `accounts`, the folder filter) defines the three
methods and passes on the rest. A library is similar, with nine methods (`core/library.py`).

A new question needs its type, its shorter spelling, and an entry in the table of each engine.
`tests/core/test_store.py` fails while a table lacks one.

The stored things are a `Record` (kind, name, type, text, facets, parent), a `RecordLink` (source, verb, target) and a
`Change`. A change is one committed transaction in an append-only log. It has an `Edit` for each altered thing, with the
old values. An entity is a record, an observation is its child record, and a relation is a link. A memory is a record
with scope, session, author, importance, tags and time. Its links lead to the entities it is about. Embeddings and
access counts are stored next to records. They are not part of a change, and undo ignores them.

The engine keeps the structure, because only it can do so with concurrent writers. Among the live children of one
parent, `(kind, name_key, variant)` is unique. Both ends of a link are live. Deleting a record deletes its children and
links. A parent is as new as its newest child. A batch that breaks a rule is a `Conflict` and changes nothing.

Families read, plan a batch and commit it. After a `Conflict` they read and plan again (`core/commits.py`). If a plan
depends on more than it touches, as an undo does, the batch has the revision it was planned for (`Batch.revision`). So a
family needs no lock and no SQL, and every engine can offer the same.

The change log serves `everkept log`, undo (`core/commits.py`) and subscriptions. Subscriptions watch its newest number,
which any process may raise.
"""
