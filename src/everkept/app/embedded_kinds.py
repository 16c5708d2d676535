"""The kinds of records that have a vector, whichever family they belong to."""

from everkept.families.bank.model import SECTION
from everkept.families.history.model import CODE, TURN
from everkept.families.memories.model import MEMORY

EMBEDDED_KINDS = (MEMORY, SECTION, TURN, CODE)
