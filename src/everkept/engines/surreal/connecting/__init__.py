"""The way to SurrealDB: in this process, or over a websocket."""
