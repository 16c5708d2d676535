"""The trial behind `everkept selftest`: servers write, are killed, and are held to their word."""
