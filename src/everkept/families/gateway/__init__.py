"""The gateway: stable tool names in front of other MCP servers, defined in a JSON file.

Its tools are not methods. `file_reader.py` reads them from the file; it knows the line of every value and says how to
fix a fault. Each call is passed on to an upstream server.

Such a tool has the effect `OUTSIDE`, because its effects are unknown:

- It takes no turn among the calls of a client, so a server that hangs does not block our tools.
- Readers see it only if the file says that it only reads.
- Its listing and its results are sent unchanged (`Tool.listing`, `ToolResult.wire`).

`app/gateway.py` checks the file once a second. When the file has changed and is valid, it replaces the tools and
notifies the transports. It keeps the connections of servers whose settings are unchanged, and lets running calls of the
others finish. Passed-through tools are listed again for each request of a client; nothing is cached.
"""
