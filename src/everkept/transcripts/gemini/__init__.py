"""Gemini CLI's transcripts."""
