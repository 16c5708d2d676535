"""Adapters of the storage ports. They store and answer queries; they never rank results or decide."""
