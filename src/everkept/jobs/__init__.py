"""Background work: vectors, maintenance, counts, and the files of a graph."""
