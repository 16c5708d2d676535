"""The import of transcripts: what is stored of them, and what is removed again."""
