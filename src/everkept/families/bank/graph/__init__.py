"""The knowledge graph as the tools of a bank see it."""
