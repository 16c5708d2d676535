"""Text for an assistant: marked as data in a fence that it cannot close, its tokens estimated."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil
from operator import itemgetter

from everkept.core.text import blake2b
from everkept.patterns import compile_late

_MARK_DIGITS = 6

# What nobody sees, but a model reads: what Unicode lets a program ignore (directions of writing,
# variation selectors, fillers, tag characters), but not the two joiners, which scripts and emoji
# need.
_INVISIBLE = compile_late(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = compile_late("[\u200c\u200d]+")
_CONTROLS = dict.fromkeys([*range(0x20), 0x7F], " ")
_WHITESPACE = compile_late(r"[\s\x00-\x1f\x7f-\x9f]+")
_SPEAKERS = "memor|conversation|system|assistant|human|user|developer|instruction|prompt|tool|function|antml|im_"
# Closing tags, comments, and tags that stand for somebody who speaks.
_MARKUP = compile_late(rf"<(?=\s*(?:[/!?|]|{_SPEAKERS}))", re.IGNORECASE)
# Tags that fetch something or swallow what follows, those with attributes, which may make any tag
# do so, and addresses.
_FETCHING_TAGS = (
    "img|image|picture|source|video|audio|track|i?frame|embed|object|link|script|style|svg|math"
    "|input|base|meta|form|portal|plaintext|textarea|title|xmp|noembed|noframes|noscript|template"
)
_TAG = compile_late(rf"<(?=(?:{_FETCHING_TAGS})\b|[a-z][\w.+-]*(?:[\s/]|:(?!:)|$))", re.IGNORECASE)
# Where a tag stands apart from a name, unlike List<int>, Markdown may take what follows for HTML.
_OPENING = compile_late(r"(?<!\w)<(?=[a-z/!?])", re.IGNORECASE)
# What makes an image or a link of words in brackets, here or where it is defined.
_LINK = compile_late(r"!(?=\[)|\](?=\()")
_DEFINITION = compile_late(r"\](?=:)")
# In code a closing tag is a closing tag.
_SPEAKER = compile_late(rf"<(?=\s*(?:\||/?\s*(?:{_SPEAKERS})))", re.IGNORECASE)
_CONTROL = compile_late(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BACKTICKS = compile_late("`+")
_NO_LANGUAGE = compile_late(r"[^\w+#.-]")
_CODE_FENCE = compile_late(r"`{3,}|~{3,}")
_FENCE_LINE = compile_late(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = compile_late(r"(?:^#|(?<=\s)##)#*(?=\s|$)")
_LEADING = compile_late(r"^(?=[-+*>=_|:]|\d+[.)]|\[[^\]]*\]:)")


def as_data(text: str) -> str:
    """The text on one line, without what Markdown or a model could take for structure.

    Nothing in it makes a program that shows Markdown fetch anything.
    """
    line = _neutralize_line(_join_lines(text))
    if "```" in line or "~~~" in line:
        line = _CODE_FENCE.sub("''", line)
    if "#" in line:
        line = _HEADING.sub(lambda found: "＃" * len(found[0]), line)
    return _LEADING.sub(r"\\", line)


def as_quotation(text: str) -> str:
    """The text with its lines, each of them quoted.

    Images, links and HTML in it are dead; blocks of code stay as they are.
    """
    lines = _neutralize_lines(sanitize_text(text).split("\n"))
    return "\n".join(f"> {line}".rstrip() for line in lines)


def as_code(text: str, language: str | None = None) -> str:
    """The text as a block of code, whose fence is longer than any in it."""
    code = sanitize_text(text)
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(code)), default=0))
    return f"{fence}{_NO_LANGUAGE.sub('', language or '')}\n{code}\n{fence}"


def _neutralize_lines(lines: Iterable[str]) -> Iterator[str]:
    """Only a fence that stands at the beginning of its line, where it belongs to no list, opens a
    block of code: everybody must agree on what is in one."""
    fence = ""
    for line in lines:
        found = _FENCE_LINE.fullmatch(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
            yield line
        elif found:
            fence = found[1]
            yield line.lstrip()
        else:
            text = _OPENING.sub("‹", _CODE_FENCE.sub("''", line))
            yield _DEFINITION.sub("] ", _neutralize_line(text))


def _join_lines(text: str) -> str:
    """Without what is hidden, and with single spaces between words."""
    if text.isascii():  # nothing in it is hidden, and this is quicker
        return " ".join((text if text.isprintable() else text.translate(_CONTROLS)).split())
    line = _JOINERS.sub(_keep_joiner, _INVISIBLE.sub("", text))
    return _WHITESPACE.sub(" ", line).strip()


def _neutralize_line(line: str) -> str:
    """Without markup, images and links."""
    if "<" in line:
        line = _TAG.sub("‹", _MARKUP.sub("‹", line))
    return _LINK.sub(r"\g<0> ", line) if "[" in line or "](" in line else line


def sanitize_text(text: str) -> str:
    """With line feeds alone, and nothing that is hidden or speaks for somebody."""
    lines = _JOINERS.sub(_keep_joiner, _INVISIBLE.sub("", text)).splitlines()
    return _SPEAKER.sub("‹", "\n".join(_CONTROL.sub(" ", line).rstrip() for line in lines))


def _keep_joiner(found: re.Match[str]) -> str:
    """One joiner between two letters of a script that needs it; others carry hidden text."""
    text, (start, end) = found.string, found.span()
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    joins = end - start == 1 and before > "\x7f" and after > "\x7f"
    return found[0] if joins else ""


def wrap_in_fence(body: str, notice: str, tag: str) -> str:
    """The notice, and the body between two tags whose number depends on it.

    Nobody can store the closing tag: `as_data` breaks it, and its number is known only when all
    lines are. It is made of digits, so that the frame takes as many tokens for every body.
    """
    mark = blake2b(body.encode("utf-8"), digest_size=8).digest()
    number = str(int.from_bytes(mark, "big"))[-_MARK_DIGITS:].zfill(_MARK_DIGITS)
    return f"{notice}\n<{tag}-{number}>\n{body}</{tag}-{number}>"


_CACHED_WORDS = 8_192  # words whose tokens are known without counting them again
_MAX_CACHED_CHARACTERS = 128  # characters of such a word
_SHORT_WORD_CHARACTERS = 4  # letters; such a word is one token in nearly every vocabulary

# How many characters one token of such a stretch holds at least. Where vocabularies differ too
# much, a token is taken to be a single byte of UTF-8, which is as short as they come.
_CHARACTERS_PER_TOKEN = {
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
_TOKENS_PER_CHARACTER = (
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


def count_tokens(text: str) -> int:
    """At least as many tokens as common vocabularies need; 0 for the empty text only.

    Held against cl100k, o200k and a published Claude vocabulary, whichever counts most: English
    prose and code come out 1.4 to 1.8 times as high, other European languages 1.0 to 1.5, Chinese,
    Japanese and Russian twice, base64, hashes and digits 1.0 to 1.2. That leaves room for
    vocabularies that cut finer. Only what nobody writes can come out too low, by up to a fifth:
    words of random lower-case letters, and rows of rare Chinese or Korean characters.
    """
    # No stretch goes on beyond a single space, so words are counted one by one, and once.
    first, *rest = words = text.split(" ")
    if "" in rest or max(map(len, words)) > _MAX_CACHED_CHARACTERS:
        return _sum_tokens(text)  # spaces in a row count together, and what is long is not kept
    return _count_word(first) + sum(map(_count_next_word, rest))


def _sum_tokens(text: str) -> int:
    return sum(_count_stretch(found) for found in _STRETCHES.finditer(text))


_count_word = lru_cache(_CACHED_WORDS)(_sum_tokens)


@lru_cache(_CACHED_WORDS)
def _count_next_word(word: str) -> int:
    """Count a word with the space before it."""
    return _sum_tokens(f" {word}")


def _count_stretch(stretch: re.Match[str]) -> int:
    kind = stretch.lastgroup or ""
    if kind == "beyond":
        return sum(map(_count_character, stretch[0]))
    length = len(stretch[kind])
    if kind == "word" and length <= _SHORT_WORD_CHARACTERS:
        return 1
    return max(ceil(length / _CHARACTERS_PER_TOKEN[kind]), 2 if kind == "hump" else 1)


@lru_cache(_CACHED_WORDS)
def _count_character(character: str) -> int:
    return _TOKENS_PER_CHARACTER[bisect_right(_TOKENS_PER_CHARACTER, character, key=itemgetter(0)) - 1][1]
