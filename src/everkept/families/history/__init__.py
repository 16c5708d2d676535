"""Past conversations, found again: what was said, decided and coded.

`core/transcripts.py` is the port: a transcript gives its turns in portions, each with a mark from
which the next reading goes on. `transcripts/` has a reader for each program behind it; those of
lines are a `Format` (`take` a record, say what is `pending`, give the `state` to go on from), and
`transcripts/documents.py` does the rest: chunks, cut lines, damage, marks that always lie between
two turns. `families/history/ingest` turns portions into records, and commits each with its mark in
one transaction. Ids follow from what a thing is (`model.py`), so nothing comes in twice, however
often and by however many processes it is read; of two imports at once the slower one meets a
`Conflict` at the mark and goes on behind the faster. A transcript that was rewritten is read anew,
and what it no longer holds is taken back (`ingest/plan.py`). Every commit passes the gate in
`ingest/checkpoints.py`, a record that forgetting closes first, so that no import brings back what
is just going; what is forgotten leaves a grave that says nothing and keeps copies out. What a copy
adds to another conversation's turn is kept with who added it, and goes with that one
(`ingest/conversations.py`). All of it is `derived`: the transcript is the truth, and the log keeps
no old text.

A conversation is the parent of its turns, a turn that of its code, and code links to the symbols
that it defines, calls, imports or extends (`code_*.py`, tree-sitter). Symbols are not linked with
each other: who calls what is read from the code that shows it, so that forgetting a conversation
forgets what was known from it alone. `searches.py` asks the one search with a profile for each tool
and dresses the results; `unified_search.py` analyses the intent (`retrieval/intent.py`, pure), asks
the other families through the port `Finder` (`app/search_sources.py` has the adapters, because
families do not know each other), and merges.

The store is `history.db`, one for all projects, `scope` being the folder that was worked in. Its
queue of vectors may be long, so one process at a time works it off (`jobs/maintenance.py`). Answers
are cached with the stamps of the stores they came from (`RecordStore.stamp`: the newest change and
the newest vector), which any process moves. `app/history.py` is what commands use.
"""
