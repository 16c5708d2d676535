"""Texts of other programs in a form that can be kept."""

import re
from functools import lru_cache

from everkept.core.secrets import masked
from everkept.values import Value, field

LONGEST_TEXT = 200_000  # characters of a turn; more is what a machine wrote
LONGEST_CODE = 100_000
LONGEST_REPLACED = 2_000
LONGEST_NAME = 1_000  # of a file, a folder, a session
LONGEST_TITLE = 200
LONGEST_FAILURE = 400  # enough to know an error by
NAME_WORDS = 80  # of the first turn, by which a conversation is called
CUT = "…"

# What is looked at beyond a limit: masks are shorter than most secrets, so more may fit.
_SPARE = 10_000
# Colours of terminals, characters that nobody can see, and halves of characters.
_UNFIT = re.compile(
    "\x1b\\[[0-9;?]{0,40}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[\ud800-\udfff]|\r\n?"
)
_MASK = re.compile(r"\[masked: [a-z ]{1,40}\]")
_LONGEST_MASK = 60
_BLANKS = re.compile(r"\s+")


def clean(text: str) -> str:
    """With line feeds alone between lines, and nothing that a database refuses."""
    return _UNFIT.sub(_fit, text) if _UNFIT.search(text) else text


def _fit(found: re.Match[str]) -> str:
    sign = found.group()
    if sign[0] == "\r":
        return "\n"
    return "\ufffd" if "\ud800" <= sign <= "\udfff" else ""


def shortened(text: str, limit: int) -> str:
    """The beginning; what stands for a secret stays whole or goes."""
    if len(text) <= limit:
        return text
    end = limit - len(CUT)
    for mask in _MASK.finditer(text, max(0, end - _LONGEST_MASK), end + _LONGEST_MASK):
        if mask.start() < end < mask.end():
            end = mask.start()
    return text[:end] + CUT


def opening(text: str) -> str:
    """What a conversation is called that begins with it: some words, on one line."""
    return shortened(_BLANKS.sub(" ", text[: 4 * NAME_WORDS]).strip(), NAME_WORDS)


class Cleaner(Value, frozen=False):
    """Cleans texts, masks their secrets where that is wished, and notes what it did.

    Secrets are masked first and the rest is cut off then: nobody knows half a secret for one.
    """

    masks: bool
    kinds: list[str] = field(default_factory=list[str])
    cut: int = 0  # texts that were too long

    def __call__(self, text: str, limit: int) -> str:
        whole = clean(text)
        text = whole[: max(2 * limit, limit + _SPARE)]
        is_cut = len(text) < len(whole)
        if self.masks:
            text, kinds = masked(text)
            self.kinds += kinds
        if is_cut and len(text) <= limit:
            text = _without_last_word(text) + CUT
        is_cut = is_cut or len(text) > limit
        self.cut += is_cut
        return shortened(text, limit)

    def name(self, text: str | None) -> str | None:
        """Of something that many turns name."""
        if not text:
            return None
        found, kinds = _masked_name(text) if self.masks else (clean(text), ())
        self.kinds += kinds
        return shortened(found, LONGEST_NAME)


@lru_cache(8_192)
def _masked_name(text: str) -> tuple[str, tuple[str, ...]]:
    found, kinds = masked(clean(text[:_SPARE]))
    return found, tuple(kinds)


def _without_last_word(text: str) -> str:
    """It may be half a secret."""
    return text[: -len(text.split()[-1])] if text.split() else ""
