"""Texts of other programs in a form that can be kept."""

import re
from dataclasses import dataclass, field

from recollect.core.secrets import masked

LONGEST_TEXT = 200_000  # characters of a turn; more is what a machine wrote
LONGEST_CODE = 100_000
LONGEST_REPLACED = 2_000
CUT = "…"

# Colours of terminals, characters that nobody can see, and halves of characters.
_UNFIT = re.compile(
    "\x1b\\[[0-9;?]{0,40}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[\ud800-\udfff]|\r\n?"
)


def clean(text: str) -> str:
    """With line feeds alone between lines, and nothing that a database refuses."""
    return _UNFIT.sub(_fit, text) if _UNFIT.search(text) else text


def _fit(found: re.Match[str]) -> str:
    sign = found.group()
    if sign[0] == "\r":
        return "\n"
    return "\ufffd" if "\ud800" <= sign <= "\udfff" else ""


@dataclass(slots=True)
class Cleaner:
    """Cleans texts, masks their secrets where that is wished, and notes what it did."""

    masks: bool
    kinds: list[str] = field(default_factory=list[str])
    cut: int = 0  # texts that were too long

    def __call__(self, text: str, limit: int) -> str:
        text = clean(text)
        if len(text) > limit:
            text = text[: limit - len(CUT)] + CUT
            self.cut += 1
        if not self.masks:
            return text
        text, kinds = masked(text)
        self.kinds += kinds
        return text
