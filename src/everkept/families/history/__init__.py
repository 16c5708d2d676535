"""Past conversations, found again: what was said, decided and coded."""
