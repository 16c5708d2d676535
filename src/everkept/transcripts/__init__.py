"""Readers for the transcripts that assistants keep on this machine."""
