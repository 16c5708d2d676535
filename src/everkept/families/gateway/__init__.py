"""Stable tool names in front of other MCP servers, as a file says."""
