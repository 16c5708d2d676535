"""Servers that have an address, spoken to over Streamable HTTP."""
