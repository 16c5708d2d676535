"""The knowledge graph of a bank: its tools, and `graph/graph.jsonl` in step with the records."""
