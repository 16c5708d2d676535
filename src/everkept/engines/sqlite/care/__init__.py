"""Care for the files of a data folder."""
