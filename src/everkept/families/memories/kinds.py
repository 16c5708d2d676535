"""The kinds of records that memories are kept as, for who must not load what they are made with."""

MEMORY = "memory"
SESSION = "session"

NOTHING_STORED = "No memories were stored."  # what a session came to whose memories are gone
