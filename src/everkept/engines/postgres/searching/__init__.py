"""Finding records by words and by meaning."""
