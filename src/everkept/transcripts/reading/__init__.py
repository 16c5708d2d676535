"""Files of transcripts: their bytes, lines and records, and how far each was read."""
