"""Import, export and migration: everything in another form or another database."""
