"""The vocabulary of the memory bank: its core files, its options, what its tools take."""

from typing import Annotated, Literal, get_args

from everkept.tools.schema import Field
from everkept.values import Value

Mode = Literal["architect", "ask", "code", "debug", "test"]
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "code"

PRODUCT = "product-context.md"
ACTIVE = "active-context.md"
PROGRESS = "progress.md"
DECISIONS = "decision-log.md"
PATTERNS = "system-patterns.md"
CORE_FILES = (PRODUCT, ACTIVE, PROGRESS, DECISIONS, PATTERNS)

# Under which each core file may be found in banks of earlier days.
LEGACY_NAMES = {
    PRODUCT: "productContext.md",
    ACTIVE: "activeContext.md",
    DECISIONS: "decisionLog.md",
    PATTERNS: "systemPatterns.md",
}

# The other way round: what a file with a name of earlier days is called today.
TODAYS_NAMES = {old: today for today, old in LEGACY_NAMES.items()}

SECTION = "section"  # the kind of record that a part of a file is indexed as
INDEXED_FILE = "bank file"  # the kind of record that says what of a file is in the index
TAKE_IN = "take in graph file"  # the name in the log of what came with the files
INDEX_BANK = "index bank"  # what the log says made the changes of both

StoreId = Annotated[str, Field("Registered store; default the active one.", name="storeId")]


class BankOptions(Value):
    """What the start of the program says about banks."""

    place: str | None  # address of the folder to begin with; None where there is none
    folder: str = "memory-bank"
    username: str = "Unknown User"
    mode: Mode | None = None
    mask_secrets: bool = True
    read_only: bool = False
    free_paths: bool = True  # False: only the bank of the start, and registered stores
