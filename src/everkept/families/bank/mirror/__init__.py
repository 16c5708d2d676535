"""The graph beside the files: `graph/graph.jsonl` follows the records, and they it."""
