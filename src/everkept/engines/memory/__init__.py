"""The reference engine, and the double that tests may use."""
