"""Search, written once for every family and every engine."""
