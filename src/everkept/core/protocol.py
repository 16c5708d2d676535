"""What both of our sides, the server and the gateway's client, must say of MCP in the same way."""

# Revisions that begin with a handshake, the oldest first, and the one that needs none.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"

META = "io.modelcontextprotocol/"  # how the protocol's own keys in `_meta` begin
MESSAGE_LIMIT = 16 * 1024 * 1024  # bytes of one message, on every transport
