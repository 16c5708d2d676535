"""The default engine: one SQLite file per project, written by many processes."""
