"""What was said and done, as turns, whatever program tells of it."""
