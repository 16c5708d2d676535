"""One store of records: tables, commits, questions."""
