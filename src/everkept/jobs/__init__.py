"""Background work: embeddings, maintenance, usage counts and graph files."""
