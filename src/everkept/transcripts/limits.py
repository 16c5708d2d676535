"""How much is read, held and kept of a transcript, whatever is in it."""

_KIBIBYTE = 1024
_MEBIBYTE = 1024 * _KIBIBYTE

# Bytes.
LARGEST_DOCUMENT = 32 * _MEBIBYTE  # that is held in memory as a whole
LARGEST_VALUE = 8 * _MEBIBYTE  # of a database; a larger one holds pictures
LONGEST_LINE = 8 * _MEBIBYTE  # a longer one holds a picture, or is none
LONGEST_EXPANDED_LINE = 64 * _MEBIBYTE  # of a compressed file; no program writes such a one
MOST_EXPANDED = 500  # times the size of a compressed file, on top of such a line
LARGEST_LIST = 4 * _MEBIBYTE  # of projects, that a program keeps for itself

# A portion ends with what brings it to one of these.
PORTION_EVENTS = 64
PORTION_TEXT = _MEBIBYTE  # characters
PORTION_READ = 4 * _MEBIBYTE  # bytes, so that what holds no turns comes to an end too

# Characters and things of a turn.
MOST_TEXT = 1_000_000
MOST_CODE = 2_000_000
MOST_REPLACED = 20_000  # of what stood in place of one snippet
MOST_THINGS = 200  # of a sort: files, tools, snippets
MOST_FAILURES = 20
LONGEST_FAILURE = 2_000  # whoever keeps it masks it first, and then shortens it
LONGEST_TITLE = 1_000  # as with failures
LONGEST_PATH = 1_000
LONGEST_NAME = 200  # of a session, a branch, a model, a tool

MOST_KINDS = 20  # of what is skipped, by the names a transcript has; our own come on top
