"""Care for what is stored: backup and restore, the doctor, audit and purge."""
