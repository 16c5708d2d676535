"""Spellings that match each other: folded characters, compounds such as identifiers, and stems.

The stemmer is the Porter stemmer of SQLite's FTS5, for engines without FTS5.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache

from everkept.patterns import compile_late


def fold(text: str) -> str:
    """Return the text with equivalent spellings made equal.

    Upper-case ASCII letters stay, because they show where the parts of an identifier begin. Scripts without spaces
    become overlapping pieces, so do not fold their text twice.
    """
    if text.isascii():
        text = text.replace("\0", " ")
    else:
        text = unicodedata.normalize("NFKC", text).translate(_FOLDED)
        text = unicodedata.normalize("NFKC", text)  # removed characters may have separated two that combine
        text = compile_unspaced_runs().sub(_split_run, text)
    if "++" in text or "#" in text or ".n" in text or ".N" in text:
        text = _LANGUAGE.sub(lambda found: _LANGUAGES[found[0].lower()], text)
    return text


def split_tokens(prepared: str) -> list[str]:
    """Split folded text into the words of the index's tokenizer, before stemming.

    `fold` removes the characters on which the Unicode tables of SQLite and Python differ.
    """
    return prepared.translate(_TOKEN).split()


# Han, kana, hangul, bopomofo, Thai, Lao, Khmer, Burmese: letters and marks, without digits.
_RUN_CHARACTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1100-\u11ff\u1780-\u17d3\u17d7\u17dc\u17dd\u3005-\u3007\u3021-\u302f\u3031-\u3035"
    "\u3038-\u303c\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\ua9e0-\ua9ef"
    "\ua9fa-\ua9fe\uaa60-\uaa7f\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\U00020000-\U0003fffd"
)
_EMOJI = compile_late(
    "[\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u2600-\u2767\u2795-\u2797\u27a1\u27b0"
    "\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
# Marks on letters without a composed form, invisible characters, emoji styles and skin tones.
_IGNORED = compile_late(
    "[\u00ad\u0300-\u036f\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufe00-\ufe0f"
    "\ufeff\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)
_PUNCTUATION = {"\u2010": "-", "\u2011": "-", "\u2018": "'", "\u2019": "'"}

_LANGUAGES = {"c++": "Cplusplus", "c#": "Csharp", "f#": "Fsharp", ".net": "dotnet"}
_LANGUAGE = compile_late(
    r"(?<![a-z0-9_])(?:c\+\+(?![a-z_+])|[cf]#(?![a-z_#])|(?<!\.)\.net(?![a-z_]))", re.IGNORECASE | re.ASCII
)


def _fold_character(character: str) -> str:
    code = ord(character)
    if code < 128:
        return character if code else " "
    if _IGNORED.match(character):
        return ""
    if _EMOJI.match(character):
        return f" emoji{code:x} "
    if _is_word_character(character):
        return _IGNORED.sub("", character.casefold())
    return _PUNCTUATION.get(character, " ")


def _is_word_character(character: str) -> bool:
    """Return whether the category is L*, N*, Co, Mn or Mc. SQLite treats unassigned characters as Co."""
    category = unicodedata.category(character)
    if category == "Cn":
        return ord(character) & 0xFFFE != 0xFFFE  # SQLite reads these as U+FFFD
    return category[0] in "LN" or category in ("Co", "Mn", "Mc")


def _to_token_character(character: str) -> str:
    if not _is_word_character(character):
        return " "
    folded = _IGNORED.sub("", character.casefold())
    # Only Latin letters lose their marks. SQLite's table lacks this letter.
    if len(folded) != 1 or folded == "ǡ":
        return folded
    base = unicodedata.normalize("NFD", folded)[0]
    return base if base.isascii() else folded


class _FoldedCharacters(dict[int, str]):
    """Table for `str.translate` that adds characters on first use."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


class _TokenCharacters(dict[int, str]):
    def __missing__(self, code: int) -> str:
        self[code] = token = _to_token_character(chr(code))
        return token


_FOLDED = _FoldedCharacters()
_TOKEN = _TokenCharacters()


@cache  # slow to compile, and ASCII text never needs it
def compile_unspaced_runs() -> re.Pattern[str]:
    """Compile the pattern for runs of scripts that are written without spaces."""
    return re.compile(f"[{_RUN_CHARACTERS}]+")


def _split_run(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join([run[start : start + 2] for start in range(len(run))])} "


MAX_JOINED_CHARACTERS = 64  # length up to which a compound may be written as one word

_LOWER = r"[^\W\d_A-Z]"
# The word for an emoji has letters and digits, but no parts.
_COMPOUND = compile_late(r"(?<![^\W_])(?!emoji[0-9a-f]{4})[^\W_]+(?:[-_.'][^\W_]+)*")
_JOIN = compile_late(r"[-_.']")
_HEX = compile_late(r"[0-9a-f]{4,}")
# URLs is one part, as are HTTP and Server in HTTPServer.
_PART = compile_late(rf"[A-Z]{{2,}}s(?!{_LOWER})|[A-Z]+(?!{_LOWER})|[A-Z]?{_LOWER}+|\d+")


def list_compounds(folded: str) -> list[str]:
    """Return the words of a folded text with the characters that join their segments, such as `node.js`."""
    return _COMPOUND.findall(folded)


def split_segments(compound: str) -> list[str]:
    return _JOIN.split(compound)


def split_parts(segments: Sequence[str]) -> list[str]:
    """Split each segment at its capitals and digits."""
    parts: list[str] = []
    for segment in segments:
        if segment.isalpha() and segment.islower():
            parts.append(segment)
            continue
        pieces = _PART.findall(segment)
        # A hash or a key is not a sequence of words.
        is_noise = len(pieces) > 1 and (
            (len(pieces) > 3 and len(segment) < 2.5 * len(pieces)) or _HEX.fullmatch(segment)
        )
        parts += [segment] if is_noise else pieces
    return parts


def join_segments(compound: str, segments: Sequence[str]) -> str | None:
    """Return the compound as one word, or None if no one writes it that way."""
    if len(segments) == 1 or len(compound) > MAX_JOINED_CHARACTERS:
        return None
    word = "".join(segments)
    # A date or a phone number may be written without separators, but 1.2.3 is not 123.
    return None if word.isdigit() and "." in compound else word


def list_other_spellings(folded: str) -> dict[str, None]:
    """Return the other spellings of the compounds in a folded text, each once, in order."""
    ways: dict[str, None] = {}
    for compound in list_compounds(folded):
        if compound.isalpha() and compound.islower():
            continue
        segments = split_segments(compound)
        parts = split_parts(segments)
        if len(parts) > len(segments):
            ways[" ".join(parts)] = None
        if word := join_segments(compound, segments):
            ways[word] = None
    return ways


MIN_STEMMED_BYTES = 3  # fts5_tokenize.c does not stem words outside these limits
MAX_STEMMED_BYTES = 64

# Suffixes and their replacements. A longer suffix comes before the suffixes that it ends with.
_STEP_2_RULES = """
    ational:ate tional:tion enci:ence anci:ance izer:ize logi:log bli:ble alli:al entli:ent eli:e ousli:ous
    ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble
"""
_STEP_2 = tuple((rule.split(":")[0], rule.split(":")[1]) for rule in _STEP_2_RULES.split())
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4_SUFFIXES = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"
_STEP_4 = tuple(_STEP_4_SUFFIXES.split())


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """Return the stem of a lower-case word, which is equal for its inflections.

    Rules and lengths count UTF-8 bytes, as FTS5 does. So a stem may end inside a character, and the rest of that
    character becomes U+FFFD.
    """
    if word.isascii():
        return _stem(word) if MIN_STEMMED_BYTES <= len(word) <= MAX_STEMMED_BYTES else word
    encoded = word.encode()
    if len(encoded) > MAX_STEMMED_BYTES:
        return word
    return _stem(encoded.decode("latin-1")).encode("latin-1").decode(errors="replace")


def _stem(word: str) -> str:
    word = _strip_plural(word)
    word = _strip_participle(word)
    # Only in this condition, FTS5 treats every y except the first letter as a vowel.
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_suffix(word, _STEP_2)
    word = _replace_suffix(word, _STEP_3)
    word = _strip_suffix(word)
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _is_short_ending(base)):
            word = base
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _strip_plural(word: str) -> str:
    if not word.endswith("s") or word.endswith("ss"):
        return word
    if (word.endswith("sses") and len(word) > 4) or (word.endswith("ies") and len(word) > 3):
        return word[:-2]
    return word[:-1]


def _strip_participle(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        base = word.removesuffix(suffix)
        if base and base != word:
            return _restore_ending(base) if _has_vowel(base) else word
    return word


def _restore_ending(base: str) -> str:
    """Return the word without -ed or -ing: hoping becomes hope, hopping becomes hop."""
    if len(base) > 2 and base.endswith(("at", "bl", "iz")):
        return base + "e"
    last = base[-1]
    if base[-2:] == last * 2 and last not in "aeioulsz":
        return base[:-1]
    return base + "e" if _measure(base) == 1 and _is_short_ending(base) else base


def _replace_suffix(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in rules:
        if word.endswith(suffix) and len(word) > len(suffix):
            base = word[: -len(suffix)]
            return base + replacement if _measure(base) > 0 else word
    return word


def _strip_suffix(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix) and len(word) > len(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and base[-1] not in "st":
                return word
            return base if _measure(base) > 1 else word
    return word


def _compute_shape(text: str) -> str:
    """Return the consonants and vowels as c and v. A y after a consonant is a vowel."""
    shape = ""
    consonant = False
    for letter in text:
        consonant = letter not in "aeiou" and not (letter == "y" and consonant)
        shape += "c" if consonant else "v"
    return shape


def _measure(base: str) -> int:
    return _compute_shape(base).count("vc")


def _is_short_ending(base: str) -> bool:
    return base[-1:] not in ("w", "x", "y") and _compute_shape(base).endswith("cvc")


def _has_vowel(base: str) -> bool:
    return any(vowel in base for vowel in "aeiou") or "y" in base[1:]
