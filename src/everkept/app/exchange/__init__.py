"""Everything as files that people read and git compares: written, and taken in again."""
