"""What records mean: one package per family of tools."""
