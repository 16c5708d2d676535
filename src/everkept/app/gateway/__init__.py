"""The gateway at work: its file, the servers behind it, and what was called how often."""
