"""How many tokens a text takes in a language model, estimated from above without a tokenizer."""

import re
from functools import lru_cache
from math import ceil

from recollect.patterns import compile_late

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
    "twos": 1 / 2,
    "threes": 1 / 3,
    "fours": 1 / 4,
}
_CONSONANT = "[b-df-hj-np-tv-xz]"
_STRETCHES = compile_late(
    rf"(?P<hump>(?<=[A-Za-z0-9])[A-Z](?:(?!{_CONSONANT}{{4}})[a-z])+)"  # as in getName, or in a key
    # A blank before a letter is part of the letter's token.
    rf"|[ ]?(?:(?P<word>[A-Z]?(?:(?!{_CONSONANT}{{4}})[a-z])+)"
    rf"|(?P<crowded>{_CONSONANT}{{4,}})"  # no word of any language: a key, a hash
    r"|(?P<capitals>[A-Z]+))"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<blanks>[ ]+|\t+|[\r\n]+)"
    r"|(?P<ones>[\x00-\x7f]|[\u0430-\u044f]+)"  # the rest of ASCII, and Cyrillic
    # Two bytes a character; and of those with three Devanagari, Thai, dashes and quotes, kana,
    # Han and Hangul, of which every vocabulary has more.
    r"|(?P<twos>[\u0080-\u07ff\u0900-\u097f\u0e00-\u0e7f\u2010-\u2027\u3000-\u30ff\u4e00-\u9fff"
    r"\uac00-\ud7a3\uff00-\uffef])"
    r"|(?P<threes>[\u0800-\uffff\U0001f300-\U0001faff])"  # with three bytes, and emoji
    r"|(?P<fours>[\U00010000-\U0010ffff])"
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
    return _count_word(first) + sum([_count_word(f" {word}") for word in rest])


def _count(text: str) -> int:
    return sum(_tokens(found) for found in _STRETCHES.finditer(text))


_count_word = lru_cache(_REMEMBERED)(_count)


def _tokens(stretch: re.Match[str]) -> int:
    kind = stretch.lastgroup or ""
    length = len(stretch[kind])
    if kind == "word" and length <= _SHORT_WORD:
        return 1
    return max(ceil(length / _CHARACTERS[kind]), 2 if kind == "hump" else 1)
