"""The Model Context Protocol over stdio and HTTP, from one dispatch table.

`transports/http.py` has an ASGI function on one path, without a framework. The header
`MCP-Protocol-Version` chooses the era: `http_requests.py` answers requests that stand on their own
and those of a session. The official SDK served both until it was most of the start (595 of 830 ms)
and two thirds of the CPU of a `ping`.

- An answer is a JSON document until the handler notifies or 15 seconds are silent; from then on it
  is a stream of events.
- A handler runs in the task of its request. Only an answer that takes longer than 50 ms gets a
  second task, which pings and notices that the client left: the stateless era cancels the request,
  a session lets it finish.
- Streams in a session can be resumed. Their events have ids and wait in one log for all sessions,
  bounded in bytes and age (`http_sessions.py`).
- Changes wait for the stream that a GET opens, each once, however often it happened.
- Sessions are found only with the token that opened them, expire when idle, and have an upper limit
  (`http_sessions.py`).

A stdio process serves one client, so its session is the process's. Over HTTP a session belongs to
an `Mcp-Session-Id`. In revision 2026-07-28 there is none: a `Session` lives for one request, and
tools that would change it say to pass `project` instead.

Calls of one client take effect in the order they came in (`transports/connection.py`): a call that
writes waits for all before it, one that reads for the writes before it. Assistants do send several
calls at once.
"""
