"""Reference engine in memory, also used as a test double."""
