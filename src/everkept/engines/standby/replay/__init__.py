"""What waited, made in the database once that is back."""
