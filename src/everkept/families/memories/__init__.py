"""Memories: facts, events and procedures with a scope, their sessions and their search.

`families/memories` is a file for each rule: `memories.py` (store, change, forget), `likeness.py`
(what is said already), `memory_record.py` (what a known text gains), `recall.py` (by a query, or
over the graph), `lifecycle.py` (expiry, supersession, and promotion, a move between two databases),
`stores.py` (with the sessions), `consolidation.py` (a plan, pure and the same for the same
memories, whoever makes it), `reflection.py` (one commit of it in each store), `context.py` (the
budget, and stored text as data), and `memory_documents.py` (counts, the status, and the resources).
Whatever returns the text of a memory asks with `visible_to`; counts include the memories of all
sessions. Entities are in `graph/`, because three families name them and families do not know each
other.

`jobs/maintenance.py` cares for the stores in the background: finishing promotions, the queue of
vectors, access counts in batches (`jobs/usage_log.py`). A server's end waits half a second at most
for the summary of its sessions.
"""
