"""The vocabulary of the product: stored things, ports and text rules. No I/O."""
