"""SurrealDB behind the same port: in this process, or a server that many share."""
