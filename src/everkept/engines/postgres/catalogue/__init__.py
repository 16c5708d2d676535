"""What a library has beside the records."""
