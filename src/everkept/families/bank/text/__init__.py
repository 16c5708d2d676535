"""Markdown and the entries in it: pure functions over text."""
