"""Care for what is stored: backups, bringing them back, and a look at what is wrong."""
