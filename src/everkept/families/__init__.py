"""Meaning of records: one package per family of tools."""
