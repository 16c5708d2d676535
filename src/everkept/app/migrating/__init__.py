"""Moving everything from one engine to another."""
