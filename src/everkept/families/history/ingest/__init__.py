"""Import of transcripts into the history, and removal of conversations."""
