"""Writing to a store: commits, purges, and all that is kept in step with them."""
