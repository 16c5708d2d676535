"""Accounts: who has a token, what each of them may see, and the library as they see it."""
