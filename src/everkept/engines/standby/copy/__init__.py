"""The copy of the database on this machine, and what keeps it near."""
