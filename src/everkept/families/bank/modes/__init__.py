"""Ways of working with a bank, and the rules of each."""
