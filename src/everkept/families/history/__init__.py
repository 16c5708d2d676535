"""Search of past conversations: what was said, decided and coded.

Import: `core/transcripts.py` is the port. A transcript yields its turns in portions, each with a mark from which the
next reading continues. `transcripts/` has a reader for each program. Programs with JSON lines have a
`TranscriptFormat`, and `transcripts/documents.py` handles chunks, cut lines, damage and marks between turns. `ingest/`
turns portions into records and commits each portion with its mark in one transaction. Ids are derived from those of the
program (`model.py`), so repeated or concurrent imports never store a turn twice. If two imports run at the same time,
the slower one gets a `Conflict` at the mark and continues after the faster one. A rewritten transcript is read again,
and turns that it no longer contains are removed (`ingest/plan.py`). Everything is `derived`: the transcript is
authoritative, and the change log keeps no old text.

Removal: every commit checks the gate in `ingest/checkpoints.py`. Forgetting closes the gate first, so that no import
restores turns that are being removed. A forgotten turn leaves a tombstone without content, which keeps copies out. If a
copy extends a turn of another conversation, the record notes which conversation added the text. That text is removed
with that conversation (`ingest/conversations.py`).

Records: a conversation is the parent of its turns, and a turn is the parent of its code. Code links to the symbols that
it defines, calls, imports or extends (`code_*.py`, tree-sitter). Symbols are not linked to each other. Calls are read
from the code that shows them, so they are forgotten together with its conversation.

Search: `searches.py` runs the common search with a profile for each tool and builds the results. `code_search.py` also
finds code through the turns around it, and `search_results.py` lets the answer represent its question.
`unified_search.py` analyzes the intent (`retrieval/intent.py`), asks the other families through the port `Finder` and
merges the results. `app/search_sources.py` has the adapters, because families do not import each other.

Storage: one `history.db` holds all projects, and `scope` is the folder of the work. Its queue of pending embeddings may
be long, so one process at a time works on it (`jobs/maintenance.py`). Answers are cached with the stamps of their
stores (`RecordStore.get_stamp`: the newest change and the newest vector). Any process that writes changes the stamp.
Commands use `app/history.py`.
"""
