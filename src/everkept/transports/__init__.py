"""The Model Context Protocol over stdio and HTTP, from one dispatch table.

`transports/http.py` has an ASGI function on one path, without a framework. The header `MCP-Protocol-Version` selects
the era. `http_requests.py` answers requests without and with a session.

An answer is a JSON document, unless the handler notifies or is silent for 15 seconds. From then on it is a stream of
events. A handler runs in the task of its request. Only an answer that takes longer than 50 ms gets a second task, which
pings and notices that the client left. The stateless era then cancels the request; a session lets it finish.

Streams in a session can be resumed. Their events have ids and wait in one log for all sessions, bounded in bytes and
age (`http_sessions.py`). Changes wait for the stream that a GET opens, each once. A session is found only with the
token that opened it, expires when idle, and counts toward an upper limit.

A stdio process serves one client, so the process has one session. Over HTTP, an `Mcp-Session-Id` identifies a session.
Revision 2026-07-28 has none: a `Session` lasts for one request, and tools that would change it answer to pass `project`
instead.

Calls of one client take effect in order (`transports/connection.py`). A call that writes waits for all earlier calls, a
call that reads for the earlier writes. Assistants do send several calls at the same time.
"""
