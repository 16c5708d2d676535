"""Codex CLI's transcripts."""
