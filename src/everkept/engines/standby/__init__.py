"""Memory that goes on while its database is away: a journal of writes, and a copy to read."""
