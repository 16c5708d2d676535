"""PostgreSQL with pgvector: one database that many servers share."""
