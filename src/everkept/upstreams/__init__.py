"""Other MCP servers: started or reached, spoken to in either era of the protocol, and ended."""
