"""What an assistant notes: progress, tasks, decisions, thoughts."""
