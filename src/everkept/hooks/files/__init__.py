"""The files that hooks keep for themselves: small, few, and whole whoever writes at once."""
