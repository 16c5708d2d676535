"""What happens once a session has ended or lost its context."""
