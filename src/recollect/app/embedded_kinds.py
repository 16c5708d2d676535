"""The kinds of records that have a vector, whichever family they belong to."""

from recollect.families.bank.model import SECTION
from recollect.families.history.model import CODE, TURN
from recollect.families.memories.model import MEMORY

EMBEDDED_KINDS = (MEMORY, SECTION, TURN, CODE)
