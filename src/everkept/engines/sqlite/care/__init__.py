"""Care for the files of a data folder: the port of it for SQLite."""
