"""What is remembered of what an assistant does, without being asked."""
