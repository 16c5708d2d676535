"""Stable tool names in front of other MCP servers, as a file says.

The one family whose tools are not methods: `families/gateway` makes them from a JSON file
(`file_reader.py`, which knows the line of everything and says how to mend it) and hands each call
on to a server behind it. Such a tool has the effect `OUTSIDE`: nothing is known of what it does, so
it takes no turn among the calls of a client (a server that hangs holds up nothing of ours), is
offered to readers only where the file says that it reads, and its listing and its results go out as
they are (`Tool.listing`, `Result.wire`).

`app/gateway.py` joins them: it looks at the file once a second, replaces the tools when it has
changed and makes sense, keeps the connections of servers that are reached as before, lets the calls
of the others come to their end, and tells the transports. Tools that are passed through whole are
asked for whenever a client asks; no answer is kept.
"""
