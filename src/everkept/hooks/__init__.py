"""What an assistant's hooks call: it starts in milliseconds, and never gets in the way."""
