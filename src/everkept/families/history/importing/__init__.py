"""Taking the transcripts of other programs in, exactly once, and out again."""
