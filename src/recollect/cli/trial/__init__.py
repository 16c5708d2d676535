"""The trial behind `recollect selftest`: servers write, are killed, and are held to their word."""
