"""Cursor's transcripts: files of its agents, and the editor's database."""
