"""The knowledge graph of a bank: its tools, and `graph/graph.jsonl` in sync with the records."""
