"""What a prompt is answered with: something from the past, a hint where to look, or nothing."""
