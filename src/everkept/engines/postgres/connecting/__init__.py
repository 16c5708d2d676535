"""The way to PostgreSQL: connections, what fails on it, and its schema over time."""
