"""Memories: facts, events and procedures with a scope, their sessions and their search.

- `memories.py`: store, change and forget.
- `memory_record.py`, `memory_identity.py`: memories as records, and what a known text gains.
- `likeness.py`: similar memories.
- `recall.py`, `graph_walk.py`: recall by a query, and over the graph.
- `lifecycle.py`: fading, supersession, and promotion, a move between two databases.
- `stores.py`: stores and sessions.
- `consolidation.py`, `reflection.py`: a pure plan, the same for the same memories, and its commit in each store.
- `context.py`: memories within a token budget, fenced as data.
- `memory_documents.py`: counts, status and resources.

Everything that returns the text of a memory filters with `visible_to`; counts include the memories of all sessions.
Entities are in `graph/`, because three families use them and families do not import each other.

`jobs/maintenance.py` finishes promotions, computes pending embeddings and writes access counts in batches
(`jobs/usage_log.py`). A server that ends waits at most half a second for the summary of its sessions.
"""
