"""Backups, stores, and looking after a bank."""
