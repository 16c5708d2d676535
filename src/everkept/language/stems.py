"""The Porter stemmer as SQLite's FTS5 has it, for engines that have no FTS5."""

from functools import lru_cache

SHORTEST_BYTES = 3  # fts5_tokenize.c passes anything outside these two through
LONGEST_BYTES = 64

_STEP_2 = (  # a suffix that ends in another stands before it
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
)
_STEP_3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_STEP_4_SUFFIXES = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"
_STEP_4 = tuple(_STEP_4_SUFFIXES.split())


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """The stem of a lower-case word, equal for its inflections.

    Rules and lengths count UTF-8 bytes, as in FTS5, so a stem may cut a character in half; what
    is left of it reads as U+FFFD.
    """
    if word.isascii():
        return _stem(word) if SHORTEST_BYTES <= len(word) <= LONGEST_BYTES else word
    encoded = word.encode()
    if len(encoded) > LONGEST_BYTES:
        return word
    return _stem(encoded.decode("latin-1")).encode("latin-1").decode(errors="replace")


def _stem(word: str) -> str:
    word = _without_plural(word)
    word = _without_participle(word)
    # In this one condition FTS5 takes every y but the first for a vowel.
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _without_suffix(word)
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _ends_short(base)):
            word = base
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _without_plural(word: str) -> str:
    if not word.endswith("s") or word.endswith("ss"):
        return word
    if (word.endswith("sses") and len(word) > 4) or (word.endswith("ies") and len(word) > 3):
        return word[:-2]
    return word[:-1]


def _without_participle(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        base = word.removesuffix(suffix)
        if base and base != word:
            return _mended(base) if _has_vowel(base) else word
    return word


def _mended(base: str) -> str:
    """What a word was before its -ed or -ing: hoping to hope, hopping to hop."""
    if len(base) > 2 and base.endswith(("at", "bl", "iz")):
        return base + "e"
    last = base[-1]
    if base[-2:] == last * 2 and last not in "aeioulsz":
        return base[:-1]
    return base + "e" if _measure(base) == 1 and _ends_short(base) else base


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in rules:
        if word.endswith(suffix) and len(word) > len(suffix):
            base = word[: -len(suffix)]
            return base + replacement if _measure(base) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix) and len(word) > len(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and base[-1] not in "st":
                return word
            return base if _measure(base) > 1 else word
    return word


def _shape(text: str) -> str:
    """Consonants and vowels, as c and v; y is a vowel behind a consonant."""
    shape = ""
    consonant = False
    for letter in text:
        consonant = letter not in "aeiou" and not (letter == "y" and consonant)
        shape += "c" if consonant else "v"
    return shape


def _measure(base: str) -> int:
    return _shape(base).count("vc")


def _ends_short(base: str) -> bool:
    return base[-1:] not in ("w", "x", "y") and _shape(base).endswith("cvc")


def _has_vowel(base: str) -> bool:
    return any(vowel in base for vowel in "aeiou") or "y" in base[1:]
