"""The Model Context Protocol over stdio and HTTP, from one dispatch table."""
