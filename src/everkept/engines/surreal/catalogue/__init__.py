"""What a library has beside its stores: projects, folders, notes, tokens."""
