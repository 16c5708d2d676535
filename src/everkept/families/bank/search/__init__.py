"""The sections of the files in the index, and finding them."""
