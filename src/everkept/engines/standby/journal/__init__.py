"""Writes that wait on this machine, in their order."""
