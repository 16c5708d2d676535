"""Adapters of the storage ports: they store and answer, and never rank or decide."""
