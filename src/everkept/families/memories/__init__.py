"""Memories: facts, events and procedures with a scope, their sessions and their search."""
