"""How many tokens a text takes in a language model, estimated from above without a tokenizer."""

import re
from bisect import bisect_right
from functools import lru_cache
from math import ceil
from operator import itemgetter

from everkept.patterns import compile_late

_REMEMBERED = 8_192  # words whose tokens are known without counting them again
_REMEMBERED_LENGTH = 128  # characters of such a word
_SHORT_WORD = 4  # letters; such a word is one token in nearly every vocabulary

# How many characters one token of such a stretch holds at least. Where vocabularies differ too
# much, a token is taken to be a single byte of UTF-8, which is as short as they come.
_CHARACTERS = {
    "word": 3.0,
    "hump": 3.0,
    "crowded": 1.5,
    "capitals": 4 / 3,
    "digits": 2.0,
    "blanks": 8.0,
    "ones": 1.0,
}
# Beyond ASCII a character takes as many tokens as it has bytes, but for those of which every
# vocabulary has more: from each of these on, so many.
_BEYOND = (
    ("\u0080", 2),
    ("\u0430", 1),  # Cyrillic
    ("\u0450", 2),
    ("\u0800", 3),
    ("\u0900", 2),  # Devanagari
    ("\u0980", 3),
    ("\u0e00", 2),  # Thai
    ("\u0e80", 3),
    ("\u2010", 2),  # dashes and quotes
    ("\u2028", 3),
    ("\u3000", 2),  # kana
    ("\u3100", 3),
    ("\u4e00", 2),  # Han
    ("\ua000", 3),
    ("\uac00", 2),  # Hangul
    ("\ud7a4", 3),
    ("\uff00", 2),  # wide and narrow forms
    ("\ufff0", 3),
    ("\U00010000", 4),
    ("\U0001f300", 3),  # emoji
    ("\U0001fb00", 4),
)
_CONSONANT = "[b-df-hj-np-tv-xz]"
_STRETCHES = compile_late(
    rf"(?P<hump>(?<=[A-Za-z0-9])[A-Z](?:(?!{_CONSONANT}{{4}})[a-z])+)"  # as in getName, or in a key
    # A blank before a letter is part of the letter's token.
    rf"|[ ]?(?:(?P<word>[A-Z]?(?:(?!{_CONSONANT}{{4}})[a-z])+)"
    rf"|(?P<crowded>{_CONSONANT}{{4,}})"  # no word of any language: a key, a hash
    r"|(?P<capitals>[A-Z]+))"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<blanks>[ ]+|\t+|[\r\n]+)"
    r"|(?P<ones>[\x00-\x7f])"  # the rest of ASCII
    # A class of these would take a hook longer to compile than its whole answer to count.
    r"|(?P<beyond>[^\x00-\x7f]+)"
)


def token_count(text: str) -> int:
    """At least as many tokens as common vocabularies need; 0 for the empty text only.

    Held against cl100k, o200k and a published Claude vocabulary, whichever counts most: English
    prose and code come out 1.4 to 1.8 times as high, other European languages 1.0 to 1.5, Chinese,
    Japanese and Russian twice, base64, hashes and digits 1.0 to 1.2. That leaves room for
    vocabularies that cut finer. Only what nobody writes can come out too low, by up to a fifth:
    words of random lower-case letters, and rows of rare Chinese or Korean characters.
    """
    # No stretch goes on beyond a single space, so words are counted one by one, and once.
    first, *rest = words = text.split(" ")
    if "" in rest or max(map(len, words)) > _REMEMBERED_LENGTH:
        return _count(text)  # spaces in a row count together, and what is long is not kept
    return _count_word(first) + sum(map(_count_next_word, rest))


def _count(text: str) -> int:
    return sum(_tokens(found) for found in _STRETCHES.finditer(text))


_count_word = lru_cache(_REMEMBERED)(_count)


@lru_cache(_REMEMBERED)
def _count_next_word(word: str) -> int:
    """Count a word with the space before it."""
    return _count(f" {word}")


def _tokens(stretch: re.Match[str]) -> int:
    kind = stretch.lastgroup or ""
    if kind == "beyond":
        return sum(map(_tokens_beyond_ascii, stretch[0]))
    length = len(stretch[kind])
    if kind == "word" and length <= _SHORT_WORD:
        return 1
    return max(ceil(length / _CHARACTERS[kind]), 2 if kind == "hump" else 1)


@lru_cache(_REMEMBERED)
def _tokens_beyond_ascii(character: str) -> int:
    return _BEYOND[bisect_right(_BEYOND, character, key=itemgetter(0)) - 1][1]
