"""Reads the transcripts that assistants leave on this machine."""
